//! Retention of terminated sandboxes and idempotency records, and metrics.

use api::{SandboxConfig, SandboxState};
use engine::{EngineError, EngineSettings, ExecutionError, SandboxCounts, SandboxError};
use rules::{Capacity, Usage};
use store::{Filter, PageRange, Store};

use crate::harness::{
    DAY, HOUR, Harness, MINUTE, SECOND, SIZE, command, config, pass, settings, settle, template, with_pool,
};

async fn listed(harness: &Harness) -> u64 {
    let filter = Filter { account: "test".to_owned(), ..Filter::default() };
    harness.store.list(&filter, PageRange { limit: 10, offset: 0 }).await.unwrap().total
}

#[tokio::test(start_paused = true)]
async fn terminated_sandboxes_and_their_events_are_deleted_after_their_retention() {
    let harness = Harness::new(EngineSettings { terminated_retention_ms: 3 * DAY, ..settings() }).await;
    let (living, first) = (harness.create().await, harness.create().await);
    harness.engine.sandbox("test", &first).terminate("request").await.unwrap();
    pass(DAY).await;
    let second = harness.create().await;
    harness.engine.sandbox("test", &second).terminate("request").await.unwrap();
    pass(2 * DAY - MINUTE).await;
    assert_eq!(listed(&harness).await, 3);
    assert_eq!(harness.ended(&first).await.1, "request");
    pass(15 * MINUTE).await;
    assert_eq!(listed(&harness).await, 2);
    assert_eq!(harness.kinds(&first).await, Vec::<String>::new());
    let error = harness.engine.sandbox("test", &first).status().await.unwrap_err();
    assert!(matches!(error, EngineError::Sandbox(SandboxError::NotFound { terminated: None })), "{error:?}");
    pass(DAY).await;
    // Live sandboxes and their events stay, whatever their age.
    assert_eq!((listed(&harness).await, harness.engine.metrics().counts.purged_sandboxes), (1, 2));
    assert_eq!(harness.kinds(&living).await, ["sandbox.created", "sandbox.started"]);
    harness.assert_clean().await;
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_retention_of_zero_keeps_them_and_a_start_purges() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
    pass(3 * DAY).await;
    assert_eq!(listed(&harness).await, 1);
    let kept = EngineSettings { terminated_retention_ms: 2 * DAY, ..settings() };
    let next = Harness::over(harness.driver.clone(), harness.store.clone(), kept, harness.clock.now()).await;
    settle().await;
    assert_eq!(listed(&next).await, 0);
}

#[tokio::test(start_paused = true)]
async fn expired_idempotency_records_are_deleted() {
    let harness = Harness::new(settings()).await;
    let answer = store::IdempotencyRecord {
        created_at: harness.clock.now(),
        expires_at: harness.clock.now().after(DAY),
        ..store::conformance::idempotency_record(1)
    };
    harness.store.commit(store::Batch::new().idempotency_record(answer.clone())).await.unwrap();
    let kept = async || {
        harness.store.idempotency_record("acme", &answer.endpoint, &answer.key).await.unwrap().is_some()
    };
    pass(DAY - MINUTE).await;
    assert!(kept().await);
    pass(15 * MINUTE).await;
    assert!(!kept().await);
    assert_eq!(harness.engine.metrics().counts.purged_idempotency_records, 1);
}

#[tokio::test(start_paused = true)]
async fn metrics_report_current_numbers_and_totals() {
    let capacity = Capacity { cpu: 10, memory_mb: 65_536, disk_mb: 655_360 };
    let harness = Harness::new(EngineSettings {
        capacity,
        concurrent_executions: 1,
        execution_queue: 1,
        paused_retention_ms: DAY,
        ..with_pool(1)
    })
    .await;
    pass(SECOND).await;
    let first = harness.create().await;
    let larger = api::Resources { disk_mb: 6000, ..SIZE };
    let second = harness.create_with(api::SandboxConfig { resources: larger, ..config() }).await.unwrap();
    let idle = api::SandboxConfig { idle_timeout_ms: MINUTE, ..config() };
    let third = harness.create_with(idle).await.unwrap();
    pass(SECOND).await;
    let running = harness.engine.sandbox("test", &first).execute(command("sleep 100")).await.unwrap();
    let waiting = harness.run(&first, "true");
    let looking = async {
        settle().await;
        let refused = harness.run(&first, "true").await;
        assert!(matches!(refused, Err(EngineError::Execution(ExecutionError::TooMany(_)))), "{refused:?}");
        let facts = harness.engine.metrics();
        assert_eq!((facts.executions_running, facts.executions_waiting), (1, 1));
        drop(running);
    };
    let (waited, ()) = tokio::join!(waiting, looking);
    waited.unwrap();
    settle().await;
    pass(HOUR).await;
    assert_eq!(harness.state(&third).await, Some(SandboxState::Paused));
    harness.engine.sandbox("test", &third).resume().await.unwrap();
    harness.engine.sandbox("test", &third).pause().await.unwrap();
    harness.driver.crash(&second);
    settle().await;
    let huge = api::Resources { cpu: 12, ..SIZE };
    harness.create_with(api::SandboxConfig { resources: huge, ..config() }).await.unwrap_err();
    harness.driver.fail_next(driver::fake::DriverOp::Limit, driver::fake::Fault::Before);
    let wide = api::Resources { cpu: 4, ..SIZE };
    harness.create_with(api::SandboxConfig { resources: wide, ..config() }).await.unwrap_err();
    pass(SECOND).await;

    let facts = harness.engine.metrics();
    assert_eq!((facts.creating, facts.sandboxes[0].1.running, facts.sandboxes[0].1.paused), (0, 1, 2));
    assert_eq!((facts.executions_running, facts.executions_waiting), (0, 0));
    assert_eq!((facts.pool[0].ready, facts.pool[0].target, facts.capacity), (1, 1, capacity));
    let used = Usage { cpu: 4, memory_mb: 2 * 2048, disk_mb: 3 * 5120 + 6000 };
    assert_eq!(facts.usage, used);
    let counts = engine::Counts {
        created_warm_container: 2,
        created_cold_container: 1,
        create_failed: 1,
        refused_capacity: 1,
        executions_started: 2,
        refused_executions: 1,
        paused_on_request: 1,
        paused_idle: 1,
        resumed: 1,
        processes_lost: 1,
        ..engine::Counts::default()
    };
    assert_eq!(facts.counts, counts);
    // What was refused or failed has no duration.
    let [(_, container), (_, gvisor)] = facts.latencies;
    assert_eq!((container.create.count(), container.resume.count(), container.execute.count()), (3, 1, 2));
    assert_eq!(gvisor, engine::LatencySnapshot::default());

    harness.engine.sandbox("test", &first).terminate("request").await.unwrap();
    pass(DAY + MINUTE).await;
    let facts = harness.engine.metrics();
    assert_eq!(facts.sandboxes[0].1, SandboxCounts::default());
    assert_eq!((facts.counts.terminated_on_request, facts.counts.terminated_expired), (1, 2));
    let short = api::SandboxConfig { timeout_ms: MINUTE, ..config() };
    harness.create_with(short).await.unwrap();
    pass(2 * MINUTE).await;
    assert_eq!(harness.engine.metrics().counts.terminated_timeout, 1);
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_account_beyond_its_share_loses_its_own_oldest_records() {
    const ENV_BYTES: usize = 100_000;
    let share = 3 * ENV_BYTES as u64 + 50_000;
    let kept = EngineSettings { terminated_bytes: share, ..settings() };
    let harness = Harness::new(kept.clone()).await;
    let large = SandboxConfig { env: [("BIG".to_owned(), "x".repeat(ENV_BYTES))].into(), ..config() };
    let end = async |account: &str| {
        let created = harness.engine.create(account, large.clone(), template(), None).await.unwrap();
        let id = created.record.id.clone();
        harness.engine.sandbox(account, &id).terminate("request").await.unwrap();
        pass(SECOND).await;
        id
    };
    let other = end("other").await;
    let living = harness.create_with(large.clone()).await.unwrap();
    let mut own = Vec::new();
    for _ in 0..8 {
        own.push(end("test").await);
    }
    pass(MINUTE).await;
    let mut left = Vec::new();
    for id in &own {
        let is_stored = harness.store.get(id).await.unwrap().is_some();
        assert_eq!(is_stored, !harness.kinds(id).await.is_empty());
        left.push(is_stored);
    }
    assert_eq!(left, [false, false, false, false, false, true, true, true]);
    assert_eq!(harness.kinds(&living).await, ["sandbox.created", "sandbox.started"]);
    assert!(harness.store.get(&other).await.unwrap().is_some() && !harness.kinds(&other).await.is_empty());
    assert_eq!(harness.engine.metrics().counts.purged_sandboxes, 5);
    // The next daemon goes on, with a smaller share.
    let kept = EngineSettings { terminated_bytes: share / 2, ..kept };
    let next = Harness::over(harness.driver.clone(), harness.store.clone(), kept, harness.clock.now()).await;
    settle().await;
    assert_eq!(
        (next.store.get(&own[6]).await.unwrap(), next.engine.metrics().counts.purged_sandboxes),
        (None, 2)
    );
    assert!(next.store.get(&own[7]).await.unwrap().is_some());
    assert!(next.store.get(&other).await.unwrap().is_some());
}
