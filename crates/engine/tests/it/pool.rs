use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use api::{Isolation, Resources, SandboxConfig};
use driver::fake::{DriverOp, Fault};
use engine::{CapacityError, EngineError, EngineSettings, PoolKey, PoolTarget};
use rules::Capacity;
use tokio::task::JoinHandle;

use crate::harness::{Harness, IMAGE, MINUTE, SIZE, config, pass, settings, template, with_pool};
use crate::warnings::Warnings;

#[tokio::test(start_paused = true)]
async fn fifty_concurrent_creates_succeed_and_the_pool_is_refilled() {
    let harness = Harness::new(EngineSettings { slots: 100, capacity: wide(), ..with_pool(20) }).await;
    pass(1000).await;
    assert_eq!(harness.engine.pool()[0].ready, 20);
    let creating = (0..50).map(|_| harness.create_with(config()));
    let ids: BTreeSet<_> =
        futures_util::future::join_all(creating).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids.len(), 50);
    pass(1000).await;
    assert_eq!((harness.engine.pool()[0].ready, harness.driver.traces().len()), (20, 70));
    harness.engine.shutdown().await;
    assert_eq!(harness.driver.traces().len(), 50);
    assert_eq!(harness.driver.violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_target_of_an_image_that_is_not_on_the_host_is_no_metric() {
    let target = PoolTarget { count: 2, resources: SIZE };
    let key = |image: &str| PoolKey { image: image.to_owned(), isolation: Isolation::Container };
    let pool = [(key(IMAGE), target), (key("missing:1"), target)].into();
    let harness = Harness::new(EngineSettings { pool, ..settings() }).await;
    pass(1000).await;
    let targets =
        harness.engine.metrics().pool.into_iter().map(|pool| (pool.key.image, pool.target, pool.ready));
    let expected = [("missing:1".to_owned(), 0, 0), (IMAGE.to_owned(), 2, 2)];
    assert_eq!(targets.collect::<Vec<_>>(), expected);
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn warm_sandboxes_of_a_removed_image_are_discarded() {
    let harness = Harness::new(with_pool(2)).await;
    pass(1000).await;
    let state = || {
        let pool = harness.engine.metrics().pool;
        (pool[0].target, pool[0].ready, harness.driver.traces().len())
    };
    assert_eq!(state(), (2, 2, 2));
    harness.is_image_removed.store(true, Ordering::Relaxed);
    pass(10_000).await;
    assert_eq!(state(), (0, 0, 0));
    harness.is_image_removed.store(false, Ordering::Relaxed);
    pass(10 * MINUTE).await;
    assert_eq!(state(), (2, 2, 2));
    harness.engine.shutdown().await;
}

fn wide() -> Capacity {
    Capacity { cpu: 1000, memory_mb: 1_000_000, disk_mb: 10_000_000 }
}

/// Capacity for `count` sandboxes of the usual size.
fn room(count: u64) -> Capacity {
    Capacity { cpu: 2 * count, memory_mb: 2048 * count, disk_mb: 5120 * count }
}

#[tokio::test(start_paused = true)]
async fn a_full_host_is_one_warning_for_all_pools() {
    let warnings = Warnings::default();
    let _recorded = warnings.start();
    let target = PoolTarget { count: 2, resources: SIZE };
    let key = |isolation: &Isolation| PoolKey { image: IMAGE.to_owned(), isolation: *isolation };
    let pool = Isolation::ALL.iter().map(|isolation| (key(isolation), target)).collect();
    let harness = Harness::new(EngineSettings { capacity: room(0), pool, ..settings() }).await;
    pass(10 * MINUTE).await;
    let [warning] = &warnings.texts()[..] else { panic!("{:?}", warnings.texts()) };
    assert!(warning.contains("no capacity for warm sandboxes"), "{warning}");
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn warm_sandboxes_are_evicted_for_a_create() {
    let harness = Harness::new(EngineSettings { capacity: room(3), ..with_pool(3) }).await;
    pass(1000).await;
    assert_eq!(harness.used(), (6, 3 * 2048, 3 * 5120));
    // Another disk size than the pool: no warm sandbox matches, and all are evicted.
    let large = Resources { disk_mb: 2 * 5120, ..SIZE };
    harness.create_with(SandboxConfig { resources: large, ..config() }).await.unwrap();
    // A warm sandbox that has to grow needs capacity as well.
    let wide = Resources { cpu: 4, ..SIZE };
    let error = harness.create_with(SandboxConfig { resources: wide, ..config() }).await;
    assert!(error.is_ok(), "{error:?}");
    let error = harness.create_with(config()).await.unwrap_err();
    assert!(matches!(error, EngineError::Capacity(CapacityError::NoCapacity(_))), "{error:?}");
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn sandboxes_in_provisioning_are_evicted_when_ready() {
    let harness = Harness::new(EngineSettings { capacity: room(1), ..with_pool(1) }).await;
    let held = harness.driver.hold(DriverOp::Start);
    pass(1000).await;
    let large = SandboxConfig { resources: Resources { disk_mb: 1024, ..SIZE }, ..config() };
    let (made, ()) = tokio::join!(harness.create_with(large), async {
        pass(1000).await;
        drop(held);
    });
    assert!(made.is_ok(), "{made:?}");
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_resume_without_capacity_is_refused() {
    let capacity = Capacity { cpu: 6, ..wide() };
    let harness = Harness::new(EngineSettings { capacity, ..with_pool(1) }).await;
    let of = |cpu| SandboxConfig { resources: Resources { cpu, ..SIZE }, ..config() };
    let paused = harness.create_with(of(4)).await.unwrap();
    harness.engine.sandbox("test", &paused).pause().await.unwrap();
    harness.create_with(of(3)).await.unwrap();
    pass(10_000).await;
    assert_eq!(harness.engine.pool()[0].ready, 1);
    let resuming = harness.engine.sandbox("test", &paused).resume();
    let resumed = tokio::time::timeout(std::time::Duration::from_secs(60), resuming).await;
    assert!(matches!(resumed, Ok(Err(EngineError::Capacity(CapacityError::NoCapacity(_))))), "{resumed:?}");
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_warm_sandbox_is_resized() {
    let harness = Harness::new(with_pool(1)).await;
    pass(1000).await;
    let wanted = Resources { cpu: 4, memory_mb: 8192, ..SIZE };
    let id = harness.create_with(SandboxConfig { resources: wanted, ..config() }).await.unwrap();
    assert_eq!(harness.driver.limits(&id), Some(driver::Limits { cpu: 4, memory_mb: 8192 }));
    let elsewhere = SandboxConfig { workdir: "/else/where".to_owned(), ..config() };
    pass(1000).await;
    let id = harness.create_with(elsewhere).await.unwrap();
    assert_eq!(harness.output(&id, "pwd").await, "/else/where\n");
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_create_costs_the_pool_nothing() {
    let harness = Harness::new(EngineSettings { capacity: room(2), ..with_pool(2) }).await;
    pass(1000).await;
    let members = harness.driver.traces();
    let wide = SandboxConfig { resources: Resources { cpu: 8, ..SIZE }, ..config() };
    for _ in 0..5 {
        let error = harness.create_with(wide.clone()).await.unwrap_err();
        assert!(matches!(error, EngineError::Capacity(CapacityError::NoCapacity(_))), "{error:?}");
    }
    assert_eq!((harness.driver.traces(), harness.engine.pool()[0].ready), (members, 2));
    harness.create().await;
    harness.engine.shutdown().await;
    assert_eq!(harness.driver.traces().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dead_warm_sandbox_is_discarded() {
    let harness = Harness::new(with_pool(2)).await;
    pass(1000).await;
    let members: Vec<_> = harness.driver.traces().into_keys().collect();
    harness.driver.crash(&members[0]);
    pass(10).await;
    for _ in 0..2 {
        let id = harness.create().await;
        assert_ne!(id, members[0]);
        assert_eq!(harness.output(&id, "echo lives").await, "lives\n");
    }
    pass(1000).await;
    assert!(!harness.driver.traces().contains_key(&members[0]));
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_refill_backs_off() {
    let harness = Harness::new(with_pool(0)).await;
    drop(harness);
    let driver = driver::fake::FakeDriver::new();
    for _ in 0..8 {
        driver.fail_next(DriverOp::Start, Fault::Before);
    }
    let harness = Harness::over(driver, store::MemoryStore::new(), with_pool(1), crate::harness::START).await;
    pass(3_000).await;
    assert!(
        harness.driver.calls(DriverOp::Start) < 6,
        "{} starts in three seconds",
        harness.driver.calls(DriverOp::Start)
    );
    assert_eq!(harness.engine.pool()[0].ready, 0);
    pass(600_000).await;
    assert_eq!(harness.engine.pool()[0].ready, 1);
    harness.engine.shutdown().await;
    assert_eq!(harness.driver.traces(), Default::default());
}

#[tokio::test(start_paused = true)]
async fn warm_sandboxes_are_evicted_for_a_resize() {
    let harness = Harness::new(EngineSettings { capacity: room(3), ..with_pool(3) }).await;
    pass(1000).await;
    let wide = Resources { cpu: 4, memory_mb: 4096, ..SIZE };
    let id = harness.create_with(SandboxConfig { resources: wide, ..config() }).await.unwrap();
    assert_eq!(harness.driver.limits(&id), Some(driver::Limits { cpu: 4, memory_mb: 4096 }));
    harness.engine.shutdown().await;
    assert_eq!(harness.driver.traces().into_keys().collect::<Vec<_>>(), [id]);
}

/// A create that does not end before the guard is dropped. It takes a warm sandbox, which has to grow.
async fn endless_create(harness: &Harness) -> (impl Sized + use<>, JoinHandle<()>) {
    let held = harness.driver.hold(DriverOp::Limit);
    let wide = SandboxConfig { resources: Resources { cpu: 4, ..SIZE }, ..config() };
    let engine = harness.engine.clone();
    let create = tokio::spawn(async move {
        engine.create("busy", wide, template(), None).await.unwrap();
    });
    pass(100).await;
    (held, create)
}

#[tokio::test(start_paused = true)]
async fn creates_without_a_pause_do_not_keep_the_pool_empty() {
    let harness = Harness::new(EngineSettings { capacity: wide(), ..with_pool(4) }).await;
    pass(1000).await;
    let (held, create) = endless_create(&harness).await;
    for _ in 0..2 {
        harness.create().await;
    }
    assert_eq!((harness.engine.metrics().creating, harness.engine.pool()[0].ready), (1, 1));
    pass(3_000).await;
    assert_eq!((harness.engine.metrics().creating, harness.engine.pool()[0].ready), (1, 4));
    drop(held);
    create.await.unwrap();
    harness.engine.shutdown().await;
}

#[tokio::test(start_paused = true)]
async fn an_account_that_creates_without_a_pause_leaves_a_warm_sandbox_to_another() {
    let harness = Harness::new(EngineSettings { capacity: wide(), ..with_pool(3) }).await;
    pass(1000).await;
    let create = async |account: &str| {
        let before = harness.engine.metrics().counts.created_warm_container;
        let created = harness.engine.create(account, config(), template(), None).await.unwrap();
        harness.engine.sandbox(account, &created.record.id).terminate("test").await.unwrap();
        harness.engine.metrics().counts.created_warm_container > before
    };
    // From now on it counts as an account that creates.
    assert!(create("calm").await);
    let (held, busy) = endless_create(&harness).await;
    for _ in 0..5 {
        pass(3_000).await;
        let mut warm = Vec::new();
        for _ in 0..4 {
            warm.push(create("busy").await);
        }
        assert_eq!(warm, [true, true, false, false]);
        assert!(create("calm").await);
    }
    drop(held);
    busy.await.unwrap();
    harness.engine.shutdown().await;
}
