//! Begun work.

use std::sync::Arc;

use super::record;
use crate::{Batch, BegunWork, Store};

fn work(subject: &str, starts: u32) -> BegunWork {
    BegunWork { kind: "upload".to_owned(), subject: subject.to_owned(), starts }
}

pub async fn begun_work_reads_back_and_is_removed(store: Arc<dyn Store>) {
    assert_eq!(store.begun_work().await, Ok(Vec::new()));
    let batch = Batch::new().put_begun_work(work("b", 1)).put_begun_work(work("a", u32::MAX));
    assert!(store.commit(batch).await.is_ok());
    let again = Batch::new().put_begun_work(work("b", 2)).delete_begun_work("upload", "missing");
    assert!(store.commit(again).await.is_ok());
    assert_eq!(store.begun_work().await, Ok(vec![work("a", u32::MAX), work("b", 2)]));
    // Another kind of the same name is another row.
    assert!(store.commit(Batch::new().delete_begun_work("fetch", "a")).await.is_ok());
    assert!(store.commit(Batch::new().delete_begun_work("upload", "a")).await.is_ok());
    assert_eq!(store.begun_work().await, Ok(vec![work("b", 2)]));
    // The record is not newer than the stored one.
    assert!(store.put(record(1)).await.is_ok());
    let refused = Batch::new().delete_begun_work("upload", "b").put_begun_work(work("c", 1)).put(record(1));
    assert!(store.commit(refused).await.is_err());
    assert_eq!(store.begun_work().await, Ok(vec![work("b", 2)]));
}
