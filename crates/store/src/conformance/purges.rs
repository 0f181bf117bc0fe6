//! Retention.
#![expect(clippy::unwrap_used, reason = "a suite of tests")]

use std::sync::Arc;

use api::EventKind;
use rules::TimeMs;

use super::{PAGE, all_of, event, id, listed, pairs, record, terminated};
use crate::{Batch, Filter, NewEvent, SandboxRecord, Store};

type Fresh = Arc<dyn Store>;

pub(super) async fn only_sandboxes_terminated_before_are_purged(store: Fresh) {
    for number in 0..4 {
        let batch =
            Batch::new().put(record(number)).event(event(number, EventKind::SandboxCreated, TimeMs(1)));
        store.commit(batch).await.unwrap();
    }
    for (number, at) in [(1, 100), (2, 200), (3, 201)] {
        store.put(terminated(&record(number), TimeMs(at))).await.unwrap();
    }
    assert_eq!(store.purge(TimeMs(100)).await.unwrap(), 0);
    assert_eq!(store.purge(TimeMs(201)).await.unwrap(), 2);
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![3, 0], 2));
    for (number, events) in [(0, 1), (1, 0), (2, 0), (3, 1)] {
        assert_eq!(store.events(&id(number), 0, 10).await.unwrap().len(), events, "{number}");
    }
    assert_eq!(store.purge(TimeMs(u64::MAX)).await.unwrap(), 1);
    assert_eq!(store.living().await.unwrap(), [record(0)]);
    assert_eq!(store.events(&id(0), 0, 10).await.unwrap().len(), 1);
}

pub(super) async fn one_call_purges_many(store: Fresh) {
    for part in 0..5u32 {
        let batch = (part * 50..part * 50 + 50).fold(Batch::new(), |batch, number| {
            let mut record = SandboxRecord { revision: 1, ..terminated(&record(number), TimeMs(7)) };
            record.config.metadata = pairs(&[("team", "red")]);
            batch.put(record).event(event(number, EventKind::SandboxTerminated, TimeMs(7)))
        });
        store.commit(batch).await.unwrap();
    }
    let tagged = Filter { metadata: pairs(&[("team", "red")]), ..all_of("acme") };
    assert_eq!(listed(&store, &tagged, PAGE).await.1, 250);
    assert_eq!(store.purge(TimeMs(8)).await.unwrap(), 250);
    assert_eq!(listed(&store, &tagged, PAGE).await, (vec![], 0));
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![], 0));
}

pub(super) async fn events_without_a_sandbox_are_purged_by_their_time(store: Fresh) {
    let failed_start = Batch::new().put(record(1)).event(event(1, EventKind::SandboxCreated, TimeMs(10)));
    store.commit(failed_start).await.unwrap();
    store
        .commit(Batch::new().delete(id(1)).event(event(1, EventKind::SandboxError, TimeMs(20))))
        .await
        .unwrap();
    store
        .commit(Batch::new().put(record(2)).event(event(2, EventKind::SandboxCreated, TimeMs(5))))
        .await
        .unwrap();
    assert_eq!(store.events(&id(1), 0, 10).await.unwrap().len(), 2);
    assert_eq!(store.purge(TimeMs(20)).await.unwrap(), 0);
    let left = store.events(&id(1), 0, 10).await.unwrap();
    assert_eq!(left.iter().map(|event| event.at).collect::<Vec<_>>(), [TimeMs(20)]);
    // Numbers of removed events are not reused.
    store.purge(TimeMs(21)).await.unwrap();
    let next = store.commit(Batch::new().event(event(3, EventKind::SandboxError, TimeMs(1)))).await.unwrap();
    assert!(next.event_sequences[0] > left[0].sequence);
    assert_eq!(store.events(&id(2), 0, 10).await.unwrap().len(), 1);
}

pub(super) async fn the_oldest_records_of_an_account_beyond_its_share_are_purged(store: Fresh) {
    const ENV_BYTES: usize = 200_000;
    // The order of the ends differs from that of the creates.
    for (number, account, at) in
        [(0, "acme", 90), (1, "acme", 10), (2, "acme", 30), (3, "acme", 20), (4, "other", 1)]
    {
        let mut record = SandboxRecord { account: account.to_owned(), ..record(number) };
        record.config.env = pairs(&[("BIG", &"x".repeat(ENV_BYTES))]);
        record.config.metadata = pairs(&[("team", "red")]);
        let event =
            NewEvent { account: account.to_owned(), ..event(number, EventKind::SandboxCreated, TimeMs(1)) };
        store.commit(Batch::new().put(record.clone()).event(event)).await.unwrap();
        if number > 0 {
            store.put(terminated(&record, TimeMs(at))).await.unwrap();
        }
    }
    let most = 2 * ENV_BYTES as u64 + 20_000;
    assert_eq!(store.purge_beyond(most + ENV_BYTES as u64).await.unwrap(), 0);
    assert_eq!(store.purge_beyond(most).await.unwrap(), 1);
    // The living one is not counted, however large it is.
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![3, 2, 0], 3));
    let tagged = Filter { metadata: pairs(&[("team", "red")]), ..all_of("acme") };
    assert_eq!(listed(&store, &tagged, PAGE).await, (vec![3, 2, 0], 3));
    for (number, events) in [(0, 1), (1, 0), (2, 1), (3, 1), (4, 1)] {
        assert_eq!(store.events(&id(number), 0, 10).await.unwrap().len(), events, "{number}");
    }
    assert_eq!(store.purge_beyond(most).await.unwrap(), 0);
    assert_eq!(store.purge_beyond(ENV_BYTES as u64 + 20_000).await.unwrap(), 1);
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![2, 0], 2));
    // What was purged by its time counts no more.
    assert_eq!(store.purge(TimeMs(31)).await.unwrap(), 2);
    store.put(terminated(&record(0), TimeMs(91))).await.unwrap();
    assert_eq!(store.purge_beyond(20_000).await.unwrap(), 0);
    assert_eq!(store.purge_beyond(0).await.unwrap(), 1);
    assert_eq!(listed(&store, &all_of("other"), PAGE).await, (vec![], 0));
}
