//! Snapshots, rollbacks and forks whose steps fail, or during which the daemon is killed: the disk is the old one or the new one, and
//! nothing is left over.

use std::sync::{Arc, Mutex};

use api::{SandboxId, SandboxState, SnapshotId};
use driver::Disks;
use driver::fake::{DriverOp, Fault};
use engine::EngineError;
use rules::{ForkRequest, SnapshotRequest};
use store::{SnapshotRecord, Store};

use crate::harness::{Harness, START, config, finishes_before_crash, pass, settings};

async fn take(harness: &Harness, id: &SandboxId) -> Result<Arc<SnapshotRecord>, EngineError> {
    harness.engine.sandbox("test", id).take_snapshot(SnapshotRequest::default(), None).await
}

async fn create_from(harness: &Harness, snapshot: &SnapshotId) -> SandboxId {
    let (template, _) = harness.engine.snapshot_template("test", snapshot).await.unwrap();
    harness.engine.create("test", config(), template, None).await.unwrap().record.id.clone()
}

/// A sandbox whose file says `new`, and a snapshot of it whose file says `old`.
async fn with_snapshot(harness: &Harness) -> (SandboxId, Arc<SnapshotRecord>) {
    let id = harness.create().await;
    harness.output(&id, "echo old > file").await;
    let snapshot = take(harness, &id).await.unwrap();
    harness.output(&id, "echo new > file").await;
    (id, snapshot)
}

fn fork(count: u32) -> ForkRequest {
    ForkRequest {
        count,
        env: Default::default(),
        name: None,
        metadata: None,
        memory: false,
        isolation: Default::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_fails_before_its_commit_changes_nothing() {
    for fault in [Fault::Before, Fault::After] {
        let harness = Harness::new(settings()).await;
        let (id, snapshot) = with_snapshot(&harness).await;
        harness.driver.fail_next(DriverOp::PrepareDisk, fault);
        let used = harness.used();
        harness.engine.sandbox("test", &id).rollback(&snapshot.id).await.unwrap_err();
        assert_eq!((harness.state(&id).await, harness.used()), (Some(SandboxState::Running), used));
        assert_eq!(harness.output(&id, "cat file").await, "new\n");
        assert_eq!(harness.driver.violations(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollback_whose_commit_fails_keeps_the_old_disk() {
    let harness = Harness::new(settings()).await;
    let (id, snapshot) = with_snapshot(&harness).await;
    harness.fail_next_commit();
    harness.engine.sandbox("test", &id).rollback(&snapshot.id).await.unwrap_err();
    // Its processes have ended; the next command starts it again on its disk.
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    assert_eq!(harness.output(&id, "cat file").await, "new\n");
}

#[tokio::test(start_paused = true)]
async fn a_rollback_that_fails_after_its_commit_has_the_new_disk() {
    for (op, fault) in [
        (DriverOp::AdoptDisk, Fault::Before),
        (DriverOp::AdoptDisk, Fault::After),
        (DriverOp::Start, Fault::Before),
        (DriverOp::Start, Fault::After),
    ] {
        let harness = Harness::new(settings()).await;
        let (id, snapshot) = with_snapshot(&harness).await;
        harness.driver.fail_next(op, fault);
        harness.engine.sandbox("test", &id).rollback(&snapshot.id).await.unwrap_err();
        assert_eq!(harness.state(&id).await, Some(SandboxState::Paused), "{op:?} {fault:?}");
        // Neither a snapshot nor a fork mixes the old disk with the layers of the new one.
        let taken = take(&harness, &id).await.unwrap();
        let copy = create_from(&harness, &taken.id).await;
        assert_eq!(harness.output(&copy, "cat file").await, "old\n", "{op:?} {fault:?}");
        let forks = harness.engine.sandbox("test", &id).fork(fork(1), None).await.unwrap();
        assert_eq!(harness.output(&forks[0].record.id, "cat file").await, "old\n", "{op:?} {fault:?}");
        assert_eq!(harness.output(&id, "cat file").await, "old\n", "{op:?} {fault:?}");
        harness.engine.sandbox("test", &id).rollback(&snapshot.id).await.unwrap();
        assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_engine_finishes_a_rollback() {
    let harness = Harness::new(settings()).await;
    let (id, snapshot) = with_snapshot(&harness).await;
    harness.driver.fail_next(DriverOp::AdoptDisk, Fault::Before);
    harness.engine.sandbox("test", &id).rollback(&snapshot.id).await.unwrap_err();
    harness.engine.shutdown().await;
    harness.store.open_again();
    let next = Harness::over(harness.driver.clone(), harness.store.clone(), settings(), START).await;
    assert_eq!(next.recovered.stopped, 1);
    assert_eq!(next.output(&id, "cat file").await, "old\n");
    assert_eq!(next.engine.list_snapshots("test", &every()).1, 1);
}

fn every() -> rules::SnapshotQuery {
    rules::snapshot_query([]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_that_fails_at_any_step_leaves_nothing() {
    for op in [DriverOp::CopyDisk, DriverOp::Capture] {
        for fault in [Fault::Before, Fault::After] {
            let harness = Harness::new(settings()).await;
            let id = harness.create().await;
            harness.driver.fail_next(op, fault);
            take(&harness, &id).await.unwrap_err();
            harness.fail_next_commit();
            take(&harness, &id).await.unwrap_err();
            pass(1000).await;
            assert_eq!(harness.driver.list_snapshots().await.unwrap(), [], "{op:?} {fault:?}");
            assert_eq!(harness.engine.snapshots_of("test").count, 0);
            assert_eq!(harness.output(&id, "echo runs").await, "runs\n");
            take(&harness, &id).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_fork_of_which_one_fails_leaves_none() {
    for op in [DriverOp::Create, DriverOp::Start, DriverOp::Connect] {
        let harness = Harness::new(settings()).await;
        let id = harness.create().await;
        let (used, traces) = (harness.used(), harness.driver.traces());
        harness.driver.fail_next(op, Fault::After);
        harness.engine.sandbox("test", &id).fork(fork(4), None).await.unwrap_err();
        harness.fail_next_commit();
        harness.engine.sandbox("test", &id).fork(fork(4), None).await.unwrap_err();
        pass(1000).await;
        assert_eq!((harness.used(), harness.driver.traces()), (used, traces), "{op:?}");
        assert_eq!(harness.driver.list_snapshots().await.unwrap(), [], "{op:?}");
        assert_eq!(harness.engine.sandbox("test", &id).fork(fork(4), None).await.unwrap().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deleted_snapshot_stays_until_a_waiting_rollback_has_used_it() {
    let harness = Harness::new(settings()).await;
    let (id, snapshot) = with_snapshot(&harness).await;
    let held = harness.driver.hold(DriverOp::PrepareDisk);
    // The client gives up while the actor is at work.
    let sandbox = harness.engine.sandbox("test", &id);
    let rollback = tokio::time::timeout(std::time::Duration::from_secs(1), sandbox.rollback(&snapshot.id));
    assert!(rollback.await.is_err());
    harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
    pass(1000).await;
    assert_eq!(harness.driver.list_snapshots().await.unwrap(), std::slice::from_ref(&snapshot.id));
    drop(held);
    pass(1000).await;
    assert_eq!(harness.output(&id, "cat file").await, "old\n");
    assert!(harness.store.snapshots().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_account_copies_one_disk_at_a_time_and_delays_no_other() {
    let harness = Harness::new(settings()).await;
    let own = [harness.create().await, harness.create().await, harness.create().await];
    let held = harness.driver.hold(DriverOp::CopyDisk);
    let engine = harness.engine.clone();
    let taking = own.map(|id| {
        let engine = engine.clone();
        tokio::spawn(async move {
            engine.sandbox("test", &id).take_snapshot(SnapshotRequest::default(), None).await
        })
    });
    pass(100).await;
    assert_eq!(harness.driver.calls(DriverOp::CopyDisk), 1);
    let template = crate::harness::template();
    let other = harness.engine.create("other", config(), template, None).await.unwrap().record.id.clone();
    let engine = harness.engine.clone();
    let others = tokio::spawn(async move {
        engine.sandbox("other", &other).take_snapshot(SnapshotRequest::default(), None).await
    });
    pass(100).await;
    assert_eq!(harness.driver.calls(DriverOp::CopyDisk), 2);
    drop(held);
    others.await.unwrap().unwrap();
    for taken in taking {
        taken.await.unwrap().unwrap();
    }
}

/// What a client knows when the daemon is killed.
#[derive(Debug, Clone, Default)]
struct Known {
    id: Option<SandboxId>,
    /// What the file of the sandbox may say.
    contents: Vec<&'static str>,
    /// Acknowledged; its file says `old`.
    snapshot: Option<SnapshotId>,
    deleted: Option<SnapshotId>,
    /// Acknowledged; their files say `new`.
    forks: Vec<SandboxId>,
}

async fn run_client(harness: &Harness, known: &Mutex<Known>) {
    let learn = |learn: &dyn Fn(&mut Known)| learn(&mut known.lock().unwrap());
    let id = harness.create().await;
    let sandbox = || harness.engine.sandbox("test", &id);
    harness.output(&id, "echo old > file").await;
    learn(&|known| (known.id, known.contents) = (Some(id.clone()), vec!["old\n"]));
    let snapshot = take(harness, &id).await.unwrap();
    learn(&|known| known.snapshot = Some(snapshot.id.clone()));
    learn(&|known| known.contents.push("new\n"));
    harness.output(&id, "echo new > file").await;
    learn(&|known| known.contents = vec!["new\n"]);
    let forks = sandbox().fork(fork(2), None).await.unwrap();
    learn(&|known| known.forks = forks.iter().map(|fork| fork.record.id.clone()).collect());
    learn(&|known| known.contents.push("old\n"));
    sandbox().rollback(&snapshot.id).await.unwrap();
    learn(&|known| known.contents = vec!["old\n"]);
    learn(&|known| known.snapshot = None);
    harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
    learn(&|known| known.deleted = Some(snapshot.id.clone()));
}

/// Checks the daemon after the crash.
async fn check(harness: &Harness, known: Known, at: &str) {
    let Known { id, contents, snapshot, deleted, forks } = known;
    if let Some(id) = id {
        let content = harness.output(&id, "cat file").await;
        assert!(contents.contains(&content.as_str()), "{at}: {content} instead of {contents:?}");
    }
    for fork in forks {
        assert_eq!(harness.output(&fork, "cat file").await, "new\n", "{at}");
    }
    if let Some(snapshot) = snapshot {
        let copy = create_from(harness, &snapshot).await;
        assert_eq!(harness.output(&copy, "cat file").await, "old\n", "{at}");
    }
    if let Some(deleted) = deleted {
        assert!(harness.engine.snapshot_template("test", &deleted).await.is_err(), "{at}");
    }
    for snapshot in harness.engine.list_snapshots("test", &every()).0 {
        harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
    }
    harness.assert_clean().await;
    pass(1000).await;
    assert_eq!(harness.driver.list_snapshots().await.unwrap(), [], "{at}");
}

#[test]
fn a_crash_at_any_step_loses_no_snapshot_and_leaves_no_disk() {
    for fault in [Fault::Before, Fault::After] {
        let finishes = |steps: &usize| {
            let at = format!("after {steps} steps, {fault:?}");
            let check = async |harness: &Harness, known| check(harness, known, &at).await;
            finishes_before_crash((*steps, fault), run_client, check)
        };
        let steps = (0..200).find(finishes).expect("the client finishes");
        assert!(steps > 15, "only {steps} steps were tried");
    }
}
