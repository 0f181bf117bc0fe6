//! Cases about templates.

use std::sync::Arc;

use api::TemplateState;
use rules::TimeMs;

use crate::{Batch, Store, StoreError, TemplateRecord};

fn template(number: u32) -> TemplateRecord {
    #[expect(clippy::expect_used, reason = "letters and digits are an id")]
    let id = format!("tpl_conformance{number}").parse().expect("an id");
    #[expect(clippy::expect_used, reason = "letters and digits are an id")]
    let snapshot = "snap_conformance1".parse().expect("an id");
    let state = TemplateState::ALL[number as usize % TemplateState::ALL.len()];
    TemplateRecord {
        id,
        account: "acme".to_owned(),
        name: "web".to_owned(),
        version: number,
        state,
        created_at: TimeMs(1_700_000_000_000 - u64::from(number)),
        finished_at: state.is_final().then_some(TimeMs(1_700_000_000_001)),
        snapshots: vec![snapshot; number as usize % 2],
        content: "{\"dockerfile\": \"FROM a\\n\"}".to_owned(),
    }
}

pub async fn templates_read_back_change_and_are_deleted(store: Arc<dyn Store>) {
    assert_eq!(store.templates().await, Ok(Vec::new()));
    for number in 1..=5 {
        assert!(store.commit(Batch::new().put_template(template(number))).await.is_ok());
    }
    // Oldest first.
    let all: Vec<_> = (1..=5).rev().map(template).collect();
    assert_eq!(store.templates().await, Ok(all));
    let changed = TemplateRecord { content: "{}".to_owned(), ..template(2) };
    let mut batch = Batch::new().put_template(changed.clone());
    for number in [1, 3, 4, 5, 9] {
        batch = batch.delete_template(template(number).id);
    }
    assert!(store.commit(batch).await.is_ok());
    assert_eq!(store.templates().await, Ok(vec![changed.clone()]));
    // Nothing of a batch that fails.
    let too_late = TemplateRecord { created_at: TimeMs(u64::MAX), ..template(4) };
    let refused = store.commit(Batch::new().delete_template(changed.id.clone()).put_template(too_late)).await;
    assert!(matches!(refused, Err(StoreError::BadRow { what: "a template", .. })), "{refused:?}");
    assert!(store.put(super::record(1)).await.is_ok());
    let batch =
        Batch::new().delete_template(changed.id.clone()).put_template(template(3)).put(super::record(1));
    assert!(store.commit(batch).await.is_err());
    assert_eq!(store.templates().await, Ok(vec![changed]));
}
