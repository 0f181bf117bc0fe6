//! Both stores pass the conformance suite, and agree with each other under random operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use api::{EventKind, SandboxState};
use proptest::prelude::{ProptestConfig, Strategy, prop, proptest};
use rules::{Lifecycle, PausedProcesses, TimeMs};
use store::conformance::{self, event, id, idempotency_record, key, record, terminated};
use store::{
    Batch, EventFilter, EventOrder, EventPage, Filter, IdempotencyRecord, KeyRecord, MemoryStore, NewEvent,
    PageRange, SandboxRecord, SqliteStore, Store, StoreError, Write,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_memory_store_conforms() {
    conformance::all(MemoryStore::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_store_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let counter = AtomicU32::new(0);
    conformance::all(|| {
        let number = counter.fetch_add(1, Ordering::Relaxed);
        SqliteStore::open(directory.path().join(format!("{number}.db"))).unwrap()
    })
    .await;
}

#[derive(Debug, Clone)]
enum Call {
    Commit(Vec<Change>),
    Purge(u64),
    PurgeIdempotencyRecords(u64),
}

#[derive(Debug, Clone)]
enum Change {
    Put { number: u32, revision: u64, slot: u32, state: u8, tag: u8, created_at: u64 },
    Delete { number: u32 },
    Event { number: u32, at: u64 },
    InRun { number: u32, at: u64, run: u8 },
    PutKey { number: u32, text: u8 },
    RevokeKey { number: u32, at: u64 },
    IdempotencyRecord { number: u32, created_at: u64, lasts: u64 },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let put = (0u32..8, 1u64..6, 0u32..6, 0u8..4, 0u8..3, 0u64..4).prop_map(
        |(number, revision, slot, state, tag, created_at)| Change::Put {
            number,
            revision,
            slot,
            state,
            tag,
            created_at,
        },
    );
    let put_record = (0u32..3, 0u64..20, 1u64..9)
        .prop_map(|(number, created_at, lasts)| Change::IdempotencyRecord { number, created_at, lasts });
    let change = prop::strategy::Union::new_weighted(vec![
        (6, put.boxed()),
        (1, (0u32..8).prop_map(|number| Change::Delete { number }).boxed()),
        (2, (0u32..8, 0u64..20).prop_map(|(number, at)| Change::Event { number, at }).boxed()),
        (
            2,
            (0u32..8, 0u64..20, 0u8..3)
                .prop_map(|(number, at, run)| Change::InRun { number, at, run })
                .boxed(),
        ),
        (1, (0u32..4, 0u8..4).prop_map(|(number, text)| Change::PutKey { number, text }).boxed()),
        (1, (0u32..4, 0u64..20).prop_map(|(number, at)| Change::RevokeKey { number, at }).boxed()),
        (2, put_record.boxed()),
    ]);
    let call = prop::strategy::Union::new_weighted(vec![
        (9, prop::collection::vec(change, 1..4).prop_map(Call::Commit).boxed()),
        (1, (0u64..20).prop_map(Call::Purge).boxed()),
        (1, (0u64..30).prop_map(Call::PurgeIdempotencyRecords).boxed()),
    ]);
    prop::collection::vec(call, 1..40)
}

fn batch(changes: &[Change]) -> Batch {
    changes.iter().fold(Batch::new(), |batch, change| match change.clone() {
        Change::Delete { number } => batch.delete(id(number)),
        Change::Event { number, at } => batch.event(event(number, EventKind::SandboxPaused, TimeMs(at))),
        Change::InRun { number, at, run } => {
            // Times differ by hours.
            let event = event(
                number,
                [EventKind::ExecStarted, EventKind::ExecCompleted][usize::from(run % 2)],
                TimeMs(at * 1_300_000),
            );
            batch.event(NewEvent { run: format!("run-{run}"), ..event })
        }
        Change::PutKey { number, text } => {
            batch.with(Write::PutKey(Box::new(KeyRecord { hash: [text; 32], ..key(number) })))
        }
        Change::RevokeKey { number, at } => {
            batch.with(Write::RevokeKey { id: key(number).id, at: TimeMs(at) })
        }
        Change::IdempotencyRecord { number, created_at, lasts } => {
            batch.idempotency_record(IdempotencyRecord {
                created_at: TimeMs(created_at),
                expires_at: TimeMs(created_at + lasts),
                content: vec![created_at as u8],
                ..idempotency_record(number)
            })
        }
        Change::Put { number, revision, slot, state, tag, created_at } => {
            let mut record = SandboxRecord { slot, created_at: TimeMs(created_at), ..record(number) };
            record.config.metadata.insert("tag".to_owned(), tag.to_string());
            match state {
                0 => record.lifecycle = Lifecycle::Creating,
                1 => {
                    let at = TimeMs(created_at + 3);
                    record.lifecycle = record.lifecycle.paused(at, PausedProcesses::Frozen);
                }
                2 => record = terminated(&record, TimeMs(created_at + 5)),
                _ => {}
            }
            record.revision = revision;
            batch.put(record)
        }
    })
}

async fn agree(one: &dyn Store, other: &dyn Store) {
    assert_eq!(one.living().await, other.living().await);
    assert_eq!(one.keys().await, other.keys().await);
    assert_eq!(one.keys_version().await, other.keys_version().await);
    for number in 0..3 {
        let IdempotencyRecord { account, endpoint, key, .. } = idempotency_record(number);
        let kept = one.idempotency_record(&account, &endpoint, &key).await;
        assert_eq!(kept, other.idempotency_record(&account, &endpoint, &key).await);
    }
    for number in 0..8 {
        assert_eq!(one.get(&id(number)).await, other.get(&id(number)).await);
        assert_eq!(one.events(&id(number), 0, 100).await, other.events(&id(number), 0, 100).await);
    }
    agree_on_events(one, other).await;
    for state in [None, Some(SandboxState::Paused), Some(SandboxState::Terminated)] {
        for tag in [None, Some("0"), Some("1")] {
            let metadata = tag.map(|tag| ("tag".to_owned(), tag.to_owned())).into_iter().collect();
            let filter = Filter { account: "acme".into(), state, image: None, metadata };
            let page = PageRange { limit: 3, offset: 1 };
            assert_eq!(one.list(&filter, page).await, other.list(&filter, page).await);
        }
    }
}

async fn agree_on_events(one: &dyn Store, other: &dyn Store) {
    assert_eq!(one.last_event().await, other.last_event().await);
    for sandbox in [None, Some(id(1))] {
        for run in [None, Some("run-1".to_owned())] {
            for kinds in [
                &[][..],
                &[EventKind::ExecCompleted],
                &[EventKind::ExecCompleted, EventKind::ExecStarted, EventKind::SandboxPaused],
            ] {
                for (since, until) in [(None, None), (Some(4_000_000), None), (Some(5), Some(9_100_000))] {
                    let filter = EventFilter {
                        account: "acme".to_owned(),
                        sandbox: sandbox.clone(),
                        kinds: kinds.iter().copied().collect(),
                        run: run.clone(),
                        since: since.map(TimeMs),
                        until: until.map(TimeMs),
                    };
                    for order in [EventOrder::OldestFirst, EventOrder::NewestFirst] {
                        let page = EventPage { after: Some(2), before: None, offset: 1, limit: 3, order };
                        assert_eq!(
                            one.list_events(&filter, page).await,
                            other.list_events(&filter, page).await
                        );
                    }
                    assert_eq!(
                        one.events_after(&filter, 1, 2).await,
                        other.events_after(&filter, 1, 2).await
                    );
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn sqlite_agrees_with_memory(calls in calls()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
        let sqlite: Arc<dyn Store> = Arc::new(SqliteStore::open(directory.path().join("s.db")).unwrap());
        runtime.block_on(async {
            for call in calls {
                match call {
                    Call::Commit(changes) => {
                        assert_eq!(memory.commit(batch(&changes)).await, sqlite.commit(batch(&changes)).await);
                    }
                    Call::PurgeIdempotencyRecords(now) => {
                        let purged = memory.purge_idempotency_records(TimeMs(now)).await;
                        assert_eq!(purged, sqlite.purge_idempotency_records(TimeMs(now)).await);
                    }
                    Call::Purge(before) => {
                        assert_eq!(memory.purge(TimeMs(before)).await, sqlite.purge(TimeMs(before)).await);
                    }
                }
            }
            agree(&*memory, &*sqlite).await;
        });
    }
}

#[tokio::test]
async fn injected_faults_of_the_memory_store_occur_once() {
    let store = MemoryStore::new();
    let fault = StoreError::failed("cannot commit", "disk full");
    store.fail_next_commit(fault.clone());
    assert_eq!(store.put(record(1)).await, Err(fault));
    assert_eq!((store.get(&id(1)).await, store.commits()), (Ok(None), 0));
    let held = store.hold_commits();
    let mut put = Box::pin(store.put(record(1)));
    for _ in 0..3 {
        assert!(poll_once(&mut put).is_none());
    }
    assert_eq!(store.get(&id(1)).await, Ok(None));
    drop(held);
    assert_eq!(put.await, Ok(()));
    assert_eq!((store.clone().living().await, store.commits()), (Ok(vec![record(1)]), 1));
}

/// Polls a future once, without a waker.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    match std::pin::Pin::new(future).poll(&mut context) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}
