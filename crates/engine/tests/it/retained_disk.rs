//! What an account keeps on the host without a record counts in its quotas until it is removed, also after a restart: copies below
//! forks, deleted snapshots that others need, and stored processes.

use api::{Isolation, SandboxConfig, SandboxId, SnapshotId};
use driver::Disks;
use driver::fake::{DriverOp, Fault};
use engine::{CapacityError, EngineError, EngineSettings, Processes};
use rules::{ForkRequest, Quota, QuotaTable, Quotas, SnapshotRequest};

use crate::harness::{Harness, MINUTE, config, pass, settings};

const MB: u64 = 1 << 20;

fn with_quotas(default: Quotas) -> EngineSettings {
    EngineSettings { quotas: QuotaTable { default, ..QuotaTable::default() }, ..settings() }
}

/// The next daemon on the same host.
async fn restarted(harness: &Harness, quotas: Quotas) -> Harness {
    harness.engine.shutdown().await;
    harness.store.open_again();
    let (driver, store) = (harness.driver.clone(), harness.store.clone());
    Harness::over(driver, store, with_quotas(quotas), harness.clock.now()).await
}

async fn fork(harness: &Harness, id: &SandboxId) -> Result<SandboxId, EngineError> {
    let request = ForkRequest {
        count: 1,
        env: Default::default(),
        name: None,
        metadata: None,
        memory: false,
        isolation: Default::default(),
    };
    Ok(harness.engine.sandbox("test", id).fork(request, None).await?[0].record.id.clone())
}

async fn take(harness: &Harness, id: &SandboxId) -> Result<SnapshotId, EngineError> {
    let taken = harness.engine.sandbox("test", id).take_snapshot(SnapshotRequest::default(), None).await?;
    Ok(taken.id.clone())
}

async fn create_from(harness: &Harness, snapshot: &SnapshotId) -> Result<SandboxId, EngineError> {
    let (template, _) = harness.engine.snapshot_template("test", snapshot).await?;
    Ok(harness.engine.create("test", config(), template, None).await?.record.id.clone())
}

async fn terminate(harness: &Harness, id: &SandboxId) {
    harness.engine.sandbox("test", id).terminate("test").await.unwrap();
}

/// The megabytes that count in the quotas of disk and of snapshots.
fn used(harness: &Harness) -> (u64, u64) {
    (harness.engine.used_by("test").disk_mb(), harness.engine.snapshots_of("test").bytes / MB)
}

fn refusal<T: std::fmt::Debug>(result: Result<T, EngineError>) -> (Quota, [u64; 3]) {
    match result {
        Err(EngineError::Capacity(CapacityError::Quota(refused))) => {
            (refused.quota, [refused.used, refused.requested, refused.allowed])
        }
        other => panic!("{other:?} is not a refusal by a quota"),
    }
}

/// Forks a sandbox with a disk of 100 MB, ends it, goes on with the fork, and so on. Returns the last sandbox, the number of forks,
/// and the refusal.
async fn attack(harness: &Harness) -> (SandboxId, usize, Option<(Quota, [u64; 3])>) {
    let mut id = harness.create().await;
    harness.driver.set_disk_bytes(100 * MB);
    for forks in 0..8 {
        match fork(harness, &id).await {
            Ok(next) => {
                terminate(harness, &id).await;
                pass(1000).await;
                id = next;
            }
            refused => return (id, forks, Some(refusal(refused))),
        }
    }
    (id, 8, None)
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_forks_stays_within_the_quota_of_disk() {
    // Two disks, and as much as three copies.
    let quotas = Quotas { disk_mb: Some(2 * 5120 + 300), ..Quotas::default() };
    let harness = Harness::new(with_quotas(quotas.clone())).await;
    let (last, forks, refused) = attack(&harness).await;
    assert_eq!((forks, refused), (3, Some((Quota::Disk, [2 * 5120 + 300, 100, 2 * 5120 + 300]))));
    assert_eq!(used(&harness), (5120 + 300, 300));
    assert_eq!(harness.driver.list_snapshots().await.unwrap().len(), 3);
    // A restart changes nothing.
    let next = restarted(&harness, quotas).await;
    assert_eq!(used(&next), (5120 + 300, 300));
    let refused = refusal(fork(&next, &last).await);
    assert_eq!(refused, (Quota::Disk, [2 * 5120 + 300, 100, 2 * 5120 + 300]));
    terminate(&next, &last).await;
    pass(1000).await;
    assert_eq!((used(&next), next.driver.list_snapshots().await.unwrap()), ((0, 0), Vec::new()));
    next.create().await;
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_forks_stays_within_the_quota_of_snapshots() {
    let quotas = Quotas { snapshot_bytes: Some(250 * MB), ..Quotas::default() };
    let harness = Harness::new(with_quotas(quotas)).await;
    let (last, forks, refused) = attack(&harness).await;
    assert_eq!((forks, refused), (2, Some((Quota::SnapshotBytes, [200 * MB, 100 * MB, 250 * MB]))));
    terminate(&harness, &last).await;
    // A request waits for the removal of what nobody needs.
    let id = harness.create().await;
    take(&harness, &id).await.unwrap();
    take(&harness, &id).await.unwrap();
    assert_eq!(used(&harness).1, 200);
}

#[tokio::test(start_paused = true)]
async fn concurrent_forks_exceed_no_quota() {
    let quotas = Quotas { disk_mb: Some(100_000), snapshot_bytes: Some(350 * MB), ..Quotas::default() };
    let harness = Harness::new(with_quotas(quotas)).await;
    let ids =
        [harness.create().await, harness.create().await, harness.create().await, harness.create().await];
    harness.driver.set_disk_bytes(100 * MB);
    let forks = ids.iter().map(|id| fork(&harness, id));
    let forked = futures_util::future::join_all(forks).await;
    assert_eq!(forked.iter().filter(|fork| fork.is_ok()).count(), 3);
    assert_eq!(used(&harness), (7 * 5120 + 300, 300));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_snapshot_counts_as_long_as_something_needs_it() {
    let quotas =
        Quotas { disk_mb: Some(5120 + 5120 + 150), snapshot_bytes: Some(250 * MB), ..Quotas::default() };
    let harness = Harness::new(with_quotas(quotas)).await;
    harness.driver.set_disk_bytes(100 * MB);
    let id = harness.create().await;
    let first = take(&harness, &id).await.unwrap();
    assert_eq!(used(&harness), (5120, 100));
    let above = create_from(&harness, &first).await.unwrap();
    terminate(&harness, &id).await;
    harness.engine.delete_snapshot("test", &first).await.unwrap();
    pass(1000).await;
    // The sandbox needs it.
    assert_eq!((used(&harness), harness.engine.snapshots_of("test").count), ((5120 + 100, 100), 0));
    let second = take(&harness, &above).await.unwrap();
    assert_eq!(used(&harness), (5120 + 100, 200));
    let refused = refusal(take(&harness, &above).await);
    assert_eq!(refused, (Quota::SnapshotBytes, [200 * MB, 100 * MB, 250 * MB]));
    assert_eq!(harness.engine.metrics().counts.refused_quota, 1);
    // The other snapshot needs it.
    terminate(&harness, &above).await;
    pass(1000).await;
    assert_eq!(used(&harness), (100, 200));
    harness.engine.delete_snapshot("test", &second).await.unwrap();
    pass(1000).await;
    assert_eq!((used(&harness), harness.driver.list_snapshots().await.unwrap()), ((0, 0), Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_failed_fork_counts_until_its_copy_is_removed() {
    for op in [DriverOp::CopyDisk, DriverOp::Capture, DriverOp::Create, DriverOp::Start] {
        for fault in [Fault::Before, Fault::After] {
            let harness = Harness::new(settings()).await;
            let id = harness.create().await;
            harness.driver.fail_next(op, fault);
            fork(&harness, &id).await.unwrap_err();
            pass(1000).await;
            assert_eq!(used(&harness), (5120, 0), "{op:?} {fault:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stored_processes_count_as_disk() {
    // What a running fake sandbox uses of memory is 12 MB, and what is stored of it 1 MB.
    let quotas = Quotas { disk_mb: Some(5120 + 11), ..Quotas::default() };
    let harness = Harness::new(with_quotas(quotas)).await;
    let gvisor = SandboxConfig { isolation: Isolation::Gvisor, ..config() };
    let id = harness.create_with(gvisor).await.unwrap();
    let sandbox = || harness.engine.sandbox("test", &id);
    let refused = refusal(sandbox().pause_with(Processes::Stored).await);
    assert_eq!(refused, (Quota::Disk, [5120, 12, 5131]));
    assert_eq!((used(&harness), harness.output(&id, "echo runs").await), ((5120, 0), "runs\n".to_owned()));
    let harness = restarted(&harness, Quotas { disk_mb: Some(5120 + 12), ..Quotas::default() }).await;
    harness.engine.sandbox("test", &id).pause_with(Processes::Stored).await.unwrap();
    assert_eq!(used(&harness), (5121, 0));
    let harness = restarted(&harness, Quotas::default()).await;
    assert_eq!(used(&harness), (5121, 0));
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(used(&harness), (5120, 0));
}

#[tokio::test(start_paused = true)]
async fn lack_of_memory_stores_processes_whatever_the_quota_is() {
    let quotas = Quotas { disk_mb: Some(5120), ..Quotas::default() };
    let settings = EngineSettings { hibernate_after_ms: MINUTE, ..with_quotas(quotas) };
    let harness = Harness::new(settings).await;
    let gvisor = SandboxConfig { isolation: Isolation::Gvisor, ..config() };
    let id = harness.create_with(gvisor).await.unwrap();
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(2 * MINUTE).await;
    assert_eq!((harness.driver.calls(DriverOp::Hibernate), used(&harness)), (1, (5121, 0)));
    // What needs no more disk is not refused.
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(used(&harness), (5120, 0));
}

#[tokio::test(start_paused = true)]
async fn the_disk_of_a_sandbox_that_cannot_be_removed_counts() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.driver.fail_next(DriverOp::Destroy, Fault::Before);
    terminate(&harness, &id).await;
    pass(1000).await;
    assert_eq!((used(&harness), harness.engine.used_by("test").sandboxes), ((5120, 0), 0));
    pass(MINUTE).await;
    assert_eq!((used(&harness), harness.driver.traces()), ((0, 0), Default::default()));
}
