//! Records, batches and events.
#![expect(clippy::unwrap_used, reason = "a suite of tests")]

use std::sync::Arc;

use api::{EgressDefault, EventKind, IngressPolicy};
use rules::{Lifecycle, PausedProcesses, TimeMs};
use tokio::task::JoinSet;

use super::{PAGE, all_of, event, id, listed, pairs, record, terminated};
use crate::{Batch, MAX_WRITES, SandboxRecord, Store, StoreError, Write};

type Fresh = Arc<dyn Store>;

pub(super) async fn a_stored_record_reads_back(store: Fresh) {
    assert_eq!(store.get(&id(1)).await.unwrap(), None);
    assert_eq!(store.living().await.unwrap(), []);
    let mut full = record(1);
    full.config.env = pairs(&[("A", "1"), ("B", "€\n\"\\\u{0}")]);
    full.config.metadata = pairs(&[("userId", "7"), ("", ""), ("a\u{0}b", "\u{0}"), ("a\u{0}c", "\u{0}")]);
    full.config.network.egress.allow = vec!["*.example.com".to_owned()];
    full.config.network.egress.default = EgressDefault::Deny;
    full.config.network.ingress = Some(IngressPolicy { allow_ports: vec![1, 65_535] });
    full.layers = Vec::new();
    store.put(full.clone()).await.unwrap();
    store.put(record(2)).await.unwrap();
    assert_eq!(store.get(&id(1)).await.unwrap().as_ref(), Some(&full));
    assert_eq!(store.living().await.unwrap(), [full, record(2)]);
}

pub(super) async fn each_state_and_option_reads_back(store: Fresh) {
    let mut creating = record(1);
    creating.lifecycle = Lifecycle::Creating;
    let mut paused = record(2);
    let at = paused.created_at.after(77);
    paused.lifecycle = paused.lifecycle.rolled_back(at, stored(at.after(1)));
    paused.slot = u32::MAX;
    let mut lost = record(4);
    lost.lifecycle = lost.lifecycle.paused(at, PausedProcesses::Ended { note: "€\n\"\\".to_owned() });
    let mut frozen = record(5);
    frozen.lifecycle = frozen.lifecycle.paused(at, PausedProcesses::Frozen);
    let ended = terminated(&record(3), TimeMs(i64::MAX as u64));
    let ended_while_paused = terminated(&SandboxRecord { slot: 6, id: id(6), ..paused.clone() }, at);
    for record in [&creating, &paused, &ended, &lost, &frozen, &ended_while_paused] {
        store.put(record.clone()).await.unwrap();
        assert_eq!(store.get(&record.id).await.unwrap().as_ref(), Some(record));
    }
    assert_eq!(store.living().await.unwrap(), [creating, paused.clone(), lost, frozen]);
    let items = store.list(&all_of("acme"), PAGE).await.unwrap().items;
    let summary = items.into_iter().find(|item| item.id == paused.id).unwrap();
    assert_eq!((summary.state, summary.image), (paused.state(), paused.config.image));
    assert_eq!((summary.created_at, summary.started_at), (paused.created_at, paused.lifecycle.started_at()));
    assert_eq!((summary.paused_at, summary.terminated_at), (Some(at), None));
    assert_eq!((summary.resources, summary.ended), (paused.config.resources, None));
}

fn stored(at: TimeMs) -> PausedProcesses {
    PausedProcesses::Stored { at, note: Some("rolled back".to_owned()) }
}

pub(super) async fn a_newer_revision_replaces_and_an_older_is_refused(store: Fresh) {
    let first = SandboxRecord { revision: 5, ..record(1) };
    store.put(first.clone()).await.unwrap();
    for offered in [5, 4, 0] {
        let stale = store.put(SandboxRecord { revision: offered, slot: 9, ..first.clone() }).await;
        assert_eq!(stale, Err(StoreError::Stale { id: id(1), stored: 5, offered }));
    }
    assert_eq!(store.get(&id(1)).await.unwrap(), Some(first.clone()));
    let mut newer = SandboxRecord { revision: 6, slot: 9, ..first };
    newer.config.timeout_ms = 1;
    store.put(newer.clone()).await.unwrap();
    assert_eq!(store.get(&id(1)).await.unwrap(), Some(newer));
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![1], 1));
}

pub(super) async fn living_sandboxes_have_different_slots(store: Fresh) {
    store.put(record(1)).await.unwrap();
    let second = SandboxRecord { slot: 1, ..record(2) };
    let taken = Err(StoreError::SlotTaken { id: id(2), slot: 1 });
    assert_eq!(store.put(second.clone()).await, taken);
    assert_eq!(store.get(&id(2)).await.unwrap(), None);
    let handed_on = Batch::new().put(terminated(&record(1), TimeMs(5))).put(second.clone());
    store.commit(handed_on).await.unwrap();
    assert_eq!(store.living().await.unwrap(), [second]);
}

pub(super) async fn a_batch_is_all_or_nothing(store: Fresh) {
    store.put(record(1)).await.unwrap();
    let batch = Batch::new()
        .put(SandboxRecord { revision: 2, ..record(1) })
        .event(event(1, EventKind::SandboxPaused, TimeMs(1)))
        .put(record(2))
        .delete(id(1))
        .put(SandboxRecord { slot: 2, ..record(3) });
    let refused = store.commit(batch).await;
    assert_eq!(refused, Err(StoreError::SlotTaken { id: id(3), slot: 2 }));
    assert_eq!(store.living().await.unwrap(), [record(1)]);
    assert_eq!(store.events(&id(1), 0, 10).await.unwrap(), []);
    assert_eq!(listed(&store, &all_of("acme"), PAGE).await, (vec![1], 1));
}

pub(super) async fn writes_of_a_batch_take_effect_in_order(store: Fresh) {
    let batch = Batch::new()
        .put(record(1))
        .event(event(1, EventKind::SandboxCreated, TimeMs(1)))
        .put(terminated(&record(1), TimeMs(9)))
        .put(SandboxRecord { slot: 1, ..record(2) })
        .delete(id(2))
        .delete(id(2))
        .put(SandboxRecord { slot: 7, ..record(2) })
        .event(event(1, EventKind::SandboxTerminated, TimeMs(9)));
    let committed = store.commit(batch).await.unwrap();
    assert_eq!(store.get(&id(1)).await.unwrap(), Some(terminated(&record(1), TimeMs(9))));
    assert_eq!(store.living().await.unwrap(), [SandboxRecord { slot: 7, ..record(2) }]);
    let events = store.events(&id(1), 0, 10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), committed.event_sequences);
    assert_eq!(
        events.iter().map(|event| &*event.kind).collect::<Vec<_>>(),
        ["sandbox.created", "sandbox.terminated"]
    );
    assert!(store.commit(Batch::new()).await.unwrap().event_sequences.is_empty());
}

pub(super) async fn bad_records_and_batches_are_refused(store: Fresh) {
    let mut hibernated = record(1);
    hibernated.lifecycle = hibernated.lifecycle.paused(TimeMs(9), stored(TimeMs(u64::MAX)));
    for bad in [
        SandboxRecord { lifecycle: Lifecycle::started(TimeMs(u64::MAX)), ..record(1) },
        terminated(&record(1), TimeMs(u64::MAX)),
        hibernated,
        SandboxRecord { created_at: TimeMs(u64::MAX), ..record(1) },
        SandboxRecord { revision: u64::MAX, ..record(1) },
    ] {
        let refused = store.commit(Batch::new().put(record(2)).put(bad)).await;
        assert!(matches!(refused, Err(StoreError::BadRecord { .. })), "{refused:?}");
    }
    let late = store.commit(Batch::new().event(event(1, EventKind::SandboxError, TimeMs(u64::MAX)))).await;
    assert!(matches!(late, Err(StoreError::BadRecord { .. })), "{late:?}");
    let writes = |count| (0..count).fold(Batch::new(), |batch, _| batch.with(Write::DeleteSandbox(id(1))));
    assert!(store.commit(writes(MAX_WRITES)).await.is_ok());
    let large = store.commit(writes(MAX_WRITES + 1)).await;
    assert_eq!(large, Err(StoreError::BatchTooLarge { writes: MAX_WRITES + 1, most: MAX_WRITES }));
    assert_eq!(store.living().await.unwrap(), []);
}

pub(super) async fn a_refused_commit_does_not_affect_others(store: Fresh) {
    store.put(record(0)).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 1..=100 {
        let store = Arc::clone(&store);
        // Every third record requests the slot of record 0.
        let slot = if number % 3 == 0 { 0 } else { number };
        tasks.spawn(async move {
            let result = store.put(SandboxRecord { slot, ..record(number) }).await;
            let expected =
                if slot == 0 { Err(StoreError::SlotTaken { id: id(number), slot }) } else { Ok(()) };
            assert_eq!(result, expected);
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let living: Vec<_> = store.living().await.unwrap().into_iter().map(|record| record.slot).collect();
    assert_eq!(living, (0..=100).filter(|number| *number == 0 || number % 3 != 0).collect::<Vec<u32>>());
}

pub(super) async fn concurrent_commits_are_all_stored(store: Fresh) {
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for revision in 1..=10 {
                let batch = Batch::new().put(SandboxRecord { revision, ..record(number) }).event(event(
                    number,
                    EventKind::SandboxPaused,
                    TimeMs(revision),
                ));
                store.commit(batch).await.unwrap();
                // A read after the commit sees the record.
                assert_eq!(store.get(&id(number)).await.unwrap().unwrap().revision, revision);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let mut sequences = Vec::new();
    for number in 0..32 {
        let events = store.events(&id(number), 0, 100).await.unwrap();
        assert_eq!(events.iter().map(|event| event.at.0).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
        sequences.extend(events.iter().map(|event| event.sequence));
    }
    sequences.sort_unstable();
    sequences.dedup();
    assert_eq!(sequences.len(), 320);
}

pub(super) async fn events_are_numbered_in_order(store: Fresh) {
    for at in 0..5 {
        for number in [1, 2] {
            store
                .commit(Batch::new().event(event(number, EventKind::SandboxResumed, TimeMs(100 - at))))
                .await
                .unwrap();
        }
    }
    let events = store.events(&id(1), 0, 100).await.unwrap();
    assert_eq!(events.len(), 5);
    assert!(events.is_sorted_by(|one, next| one.sequence < next.sequence && one.at > next.at));
    let first = &events[0];
    let given = event(1, EventKind::SandboxResumed, TimeMs(100));
    assert_eq!((&first.sandbox, &first.account, first.at), (&given.sandbox, &given.account, given.at));
    assert_eq!((first.kind.as_str(), &first.data), (given.kind.as_str(), &given.data));
    assert_eq!(store.events(&id(1), events[1].sequence, 2).await.unwrap(), events[2..4]);
    assert_eq!(store.events(&id(1), events[4].sequence, 2).await.unwrap(), []);
    assert_eq!(store.events(&id(1), u64::MAX, 2).await.unwrap(), []);
    assert_eq!(store.events(&id(1), 0, 0).await.unwrap(), []);
    assert_eq!(store.events(&id(3), 0, 2).await.unwrap(), []);
}

pub(super) async fn calls_of_a_closed_store_fail(store: Fresh) {
    store.put(record(1)).await.unwrap();
    store.close().await;
    store.close().await;
    assert_eq!(store.put(record(2)).await, Err(StoreError::Closed));
    assert_eq!(store.get(&id(1)).await, Err(StoreError::Closed));
    assert_eq!(store.living().await, Err(StoreError::Closed));
    assert_eq!(store.list(&all_of("acme"), PAGE).await, Err(StoreError::Closed));
    assert_eq!(store.events(&id(1), 0, 1).await, Err(StoreError::Closed));
    assert_eq!(store.purge(TimeMs(1)).await, Err(StoreError::Closed));
    assert_eq!(store.keys().await, Err(StoreError::Closed));
    assert_eq!(store.keys_version().await, Err(StoreError::Closed));
    assert_eq!(store.idempotency_record("", "", "").await, Err(StoreError::Closed));
    assert_eq!(store.purge_idempotency_records(TimeMs(1)).await, Err(StoreError::Closed));
}
