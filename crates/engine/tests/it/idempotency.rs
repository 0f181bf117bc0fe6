//! Idempotency records of creates, committed with the sandbox.

use std::sync::Arc;

use driver::fake::{DriverOp, FakeDriver, Fault};
use engine::{EngineError, HostError, PendingIdempotencyRecord};
use rules::TimeMs;
use store::{IdempotencyRecord, MemoryStore, SandboxRecord, Store, StoreError};

use crate::harness::{DAY, Harness, START, config, pass, settings, settle, template, with_pool};

const ENDPOINT: &str = "POST /v1/sandboxes";

fn pending_record(key: &str) -> Option<PendingIdempotencyRecord> {
    Some(PendingIdempotencyRecord {
        endpoint: ENDPOINT.to_owned(),
        key: key.to_owned(),
        request_hash: [5; 32],
        expires_at: START.after(DAY),
        respond: Box::new(respond),
    })
}

fn respond(record: &SandboxRecord) -> (u16, Vec<u8>) {
    (201, format!("{} {} {:?}", record.id, record.state(), record.lifecycle.started_at()).into_bytes())
}

async fn stored_response(harness: &Harness, key: &str) -> Option<IdempotencyRecord> {
    harness.store.idempotency_record("test", ENDPOINT, key).await.unwrap()
}

async fn create(harness: &Harness, key: &str) -> Result<engine::Status, EngineError> {
    harness.engine.create("test", config(), template(), pending_record(key)).await
}

fn is_already_recorded(result: &Result<engine::Status, EngineError>) -> bool {
    matches!(result, Err(EngineError::Host(HostError::Store(StoreError::AlreadyRecorded { .. }))))
}

#[tokio::test(start_paused = true)]
async fn record_events_and_idempotency_record_are_one_commit() {
    for harness in [Harness::new(settings()).await, Harness::new(with_pool(1)).await] {
        pass(1000).await;
        let before = harness.store.commits();
        let record = create(&harness, "a").await.unwrap().record;
        assert_eq!(harness.store.commits(), before + 1);
        let (status, content) = respond(&record);
        let answer = IdempotencyRecord {
            account: "test".to_owned(),
            endpoint: ENDPOINT.to_owned(),
            key: "a".to_owned(),
            request_hash: [5; 32],
            status,
            content,
            created_at: record.created_at,
            expires_at: START.after(DAY),
        };
        assert_eq!(stored_response(&harness, "a").await, Some(answer));
        assert_eq!(harness.kinds(&record.id).await, ["sandbox.created", "sandbox.started"]);
        // The record outlives its sandbox.
        harness.engine.sandbox("test", &record.id).terminate("request").await.unwrap();
        assert!(stored_response(&harness, "a").await.is_some());
        harness.engine.shutdown().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_create_stores_no_response() {
    let harness = Harness::new(settings()).await;
    for verb in [DriverOp::Create, DriverOp::Start, DriverOp::Connect] {
        for fault in [Fault::Before, Fault::After] {
            harness.driver.fail_next(verb, fault);
            create(&harness, "a").await.unwrap_err();
            assert_eq!(stored_response(&harness, "a").await, None, "{verb:?} {fault:?}");
        }
    }
    harness.fail_next_commit();
    create(&harness, "a").await.unwrap_err();
    assert_eq!((stored_response(&harness, "a").await, harness.driver.traces()), (None, Default::default()));
    // The key can be used again.
    create(&harness, "a").await.unwrap();
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_second_create_with_the_same_key_leaves_nothing() {
    let harness = Harness::new(settings()).await;
    let first = create(&harness, "a").await.unwrap().record.id.clone();
    let commits = harness.store.commits();
    let second = create(&harness, "a").await;
    assert!(is_already_recorded(&second), "{second:?}");
    assert_eq!(harness.driver.traces().into_keys().collect::<Vec<_>>(), [first]);
    assert_eq!((harness.used(), harness.engine.living()), ((2, 2048, 5120), 1));
    // It is not counted as a failed start and has no event.
    assert_eq!((harness.store.commits(), harness.engine.metrics().counts.create_failed), (commits, 0));
    // Another key, endpoint or account is another request.
    create(&harness, "b").await.unwrap();
    harness.engine.create("other", config(), template(), pending_record("a")).await.unwrap();
    let elsewhere =
        PendingIdempotencyRecord { endpoint: "POST /v1/other".to_owned(), ..pending_record("a").unwrap() };
    harness.engine.create("test", config(), template(), Some(elsewhere)).await.unwrap();
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn ten_concurrent_creates_with_one_key_create_one_sandbox() {
    for settings in [settings(), with_pool(3)] {
        let harness = Harness::new(settings).await;
        pass(1000).await;
        let results = futures_util::future::join_all((0..10).map(|_| create(&harness, "a"))).await;
        let made: Vec<_> = results.iter().flatten().collect();
        assert_eq!(made.len(), 1);
        assert_eq!(results.iter().filter(|result| is_already_recorded(result)).count(), 9);
        let living = harness.store.living().await.unwrap();
        assert_eq!(living.len(), 1);
        assert_eq!(stored_response(&harness, "a").await.unwrap().content, respond(&living[0]).1);
        harness.engine.sandbox("test", &living[0].id).terminate("request").await.unwrap();
        harness.engine.shutdown().await;
        assert_eq!(harness.driver.traces(), Default::default());
    }
}

#[tokio::test(start_paused = true)]
async fn an_expired_key_creates_another_sandbox() {
    let harness = Harness::new(settings()).await;
    let first = create(&harness, "a").await.unwrap().record.id.clone();
    pass(DAY - 1000).await;
    assert!(is_already_recorded(&create(&harness, "a").await));
    pass(1000).await;
    let again = PendingIdempotencyRecord { expires_at: START.after(3 * DAY), ..pending_record("a").unwrap() };
    let second = harness.engine.create("test", config(), template(), Some(again)).await.unwrap();
    assert_ne!(second.record.id, first);
    assert_eq!(stored_response(&harness, "a").await.unwrap().content, respond(&second.record).1);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_create_with_a_cancelled_caller_stores_its_response() {
    let harness = Harness::new(settings()).await;
    let held = harness.store.hold_commits();
    let caller = create(&harness, "a");
    assert!(tokio::time::timeout(std::time::Duration::from_secs(1), caller).await.is_err());
    assert_eq!((stored_response(&harness, "a").await, harness.engine.living()), (None, 0));
    drop(held);
    settle().await;
    let [record] = harness.store.living().await.unwrap().try_into().unwrap();
    assert_eq!(stored_response(&harness, "a").await.unwrap().content, respond(&record).1);
    assert!(is_already_recorded(&create(&harness, "a").await));
    harness.assert_clean().await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

/// What a crash during a create left.
#[derive(Debug, PartialEq, Eq)]
enum AfterCrash {
    Nothing,
    Both,
}

/// The daemon crashes in the step after `steps` on the host, or while its commit waits for the disk. The next daemon gets the
/// same request again.
fn crash_during_create(steps: usize, fault: Fault, in_commit: bool) -> AfterCrash {
    let (driver, store) = (FakeDriver::new(), MemoryStore::new());
    driver.crash_after(steps, fault);
    let held = in_commit.then(|| store.hold_commits());
    let first = runtime();
    first.block_on(async {
        let harness = Harness::over(driver.clone(), store.clone(), settings(), START).await;
        let creating = create(&harness, "a");
        let _ = tokio::time::timeout(std::time::Duration::from_millis(100), creating).await;
    });
    drop(first);
    drop(held);
    driver.stop_crashing();
    runtime().block_on(async {
        let harness = Harness::over(driver, store, settings(), START.after(1000)).await;
        let records = harness.store.living().await.unwrap();
        assert_eq!(harness.driver.traces().len(), records.len(), "after {steps} steps");
        let answer = stored_response(&harness, "a").await;
        let left = match (&*records, answer) {
            ([], None) => AfterCrash::Nothing,
            ([record], Some(answer)) => {
                assert_eq!(answer.content, respond(record).1);
                AfterCrash::Both
            }
            (records, answer) => panic!("after {steps} steps: {records:?} and {answer:?}"),
        };
        let again = create(&harness, "a").await;
        assert_eq!(is_already_recorded(&again), left == AfterCrash::Both, "{again:?} after {steps} steps");
        assert_eq!(harness.store.living().await.unwrap().len(), 1);
        harness.assert_clean().await;
        left
    })
}

#[test]
fn a_crash_leaves_no_sandbox_without_its_response() {
    for fault in [Fault::Before, Fault::After] {
        let steps =
            (0..100).find(|steps| crash_during_create(*steps, fault, false) == AfterCrash::Both).unwrap();
        assert!(steps >= 3, "only {steps} steps were tried");
        assert_eq!(crash_during_create(steps, fault, true), AfterCrash::Nothing);
    }
}

/// On the service's store: the list has the sandbox as soon as the create returned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_after_a_create_shows_the_sandbox() {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = Arc::new(store::SqliteStore::open(directory.path().join("s.db")).unwrap());
    let parts = engine::Parts {
        driver: Arc::new(FakeDriver::new()),
        store: sqlite.clone(),
        network: Arc::new(net::NoNetwork),
        refusals: None,
        find_image: Arc::new(|_: &str| None),
        clock: engine::Clock::runtime(START),
        copies: None,
    };
    let (engine, _) = engine::Engine::open(parts, settings()).await.unwrap();
    let shows = async |id: &api::SandboxId, state: api::SandboxState| {
        let page = store::PageRange { limit: 100, offset: 0 };
        let of = |state| store::Filter { account: "test".to_owned(), state, ..Default::default() };
        for filter in [of(None), of(Some(state))] {
            let listing = sqlite.list(&filter, page).await.unwrap();
            let item = listing.items.iter().find(|item| item.id == *id).unwrap();
            assert_eq!(item.state, state);
            assert_eq!(listing.total, listing.items.len() as u64);
        }
        assert_eq!(sqlite.get(id).await.unwrap().unwrap().state(), state);
    };
    let client = async |key: &str| {
        let made = engine.create("test", config(), template(), pending_record(key)).await.unwrap();
        let id = made.record.id.clone();
        shows(&id, api::SandboxState::Running).await;
        let answer = sqlite.idempotency_record("test", ENDPOINT, key).await.unwrap().unwrap();
        assert_eq!(answer.content, respond(&made.record).1);
        for _ in 0..10 {
            engine.sandbox("test", &id).pause().await.unwrap();
            shows(&id, api::SandboxState::Paused).await;
            engine.sandbox("test", &id).resume().await.unwrap();
            shows(&id, api::SandboxState::Running).await;
        }
        engine.sandbox("test", &id).pause().await.unwrap();
        let execution = engine.sandbox("test", &id).execute(crate::harness::command("true")).await.unwrap();
        shows(&id, api::SandboxState::Running).await;
        execution.collect(10).await.unwrap();
        engine.sandbox("test", &id).terminate("request").await.unwrap();
        shows(&id, api::SandboxState::Terminated).await;
    };
    tokio::join!(client("a"), client("b"), client("c"));
    engine.shutdown().await;
    assert_eq!(sqlite.purge_idempotency_records(TimeMs(0)).await, Err(StoreError::Closed));
}
