//! Snapshots, forks and rollbacks with processes: the source goes on with its clients, copies continue what ran, failed steps leave
//! nothing, and crashes lose nothing that was acknowledged.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Isolation, SandboxConfig, SandboxId, SandboxState, SnapshotId};
use driver::Disks;
use driver::fake::{DriverOp, FakeDriver, Fault};
use engine::{
    DetachedRequest, DetachedSettings, EngineError, EngineSettings, ExecutionId, ExecutionState,
    HibernationError, Processes,
};
use rules::{AutoResume, ForkRequest, SnapshotRequest};
use store::{MemoryStore, SnapshotRecord};
use tempfile::TempDir;

use crate::harness::{Harness, START, command, config, pass, runtime, settings, settle};
use crate::network::fake::FakeNetwork;

const START_PROCESS: &str = "sleep 1000 >/dev/null 2>&1 &";
const COUNT: &str = "pgrep -c sleep";

fn gvisor() -> SandboxConfig {
    SandboxConfig { isolation: Isolation::Gvisor, ..config() }
}

fn with_dir(dir: &TempDir) -> EngineSettings {
    EngineSettings { detached: DetachedSettings::in_dir(dir.path().to_owned()), ..settings() }
}

async fn take(harness: &Harness, id: &SandboxId) -> Result<Arc<SnapshotRecord>, EngineError> {
    let request = SnapshotRequest { memory: true, ..SnapshotRequest::default() };
    harness.engine.sandbox("test", id).take_snapshot(request, None).await
}

async fn create_from(harness: &Harness, snapshot: &SnapshotId) -> Result<SandboxId, EngineError> {
    let (template, _) = harness.engine.snapshot_template("test", snapshot).await.unwrap();
    Ok(harness.engine.create("test", gvisor(), template, None).await?.record.id.clone())
}

fn fork(count: u32) -> ForkRequest {
    ForkRequest {
        count,
        env: Default::default(),
        name: None,
        metadata: None,
        memory: true,
        isolation: Default::default(),
    }
}

/// A sandbox with a background process and a detached `cat` that has printed `one`.
async fn busy(harness: &Harness) -> (SandboxId, ExecutionId) {
    let id = harness.create_with(gvisor()).await.unwrap();
    harness.run(&id, START_PROCESS).await.unwrap();
    let request = DetachedRequest {
        command: "cat".to_owned(),
        stdin: Some("one\n".to_owned()),
        open_stdin: true,
        timeout_ms: Some(60_000),
        ..DetachedRequest::default()
    };
    let started = harness.engine.sandbox("test", &id).start_detached(request).await.unwrap();
    pass(10).await;
    assert_eq!(printed(harness, &id, &started.id).await, (ExecutionState::Running, 4));
    (id, started.id)
}

/// The state of an execution, and the bytes that it has printed.
async fn printed(harness: &Harness, id: &SandboxId, execution: &ExecutionId) -> (ExecutionState, u64) {
    let status = harness.engine.sandbox("test", id).execution(execution).await.unwrap();
    (status.state, status.output.stdout)
}

async fn write(harness: &Harness, id: &SandboxId, execution: &ExecutionId, text: &str) {
    let input = harness.engine.sandbox("test", id).write_stdin(execution, AutoResume::Allowed).await.unwrap();
    input.write(text.as_bytes()).await.unwrap();
    pass(10).await;
}

/// Directories of executions, which are gone with their sandboxes and snapshots.
fn left(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, Iterator::count)
}

#[test]
fn copies_continue_what_ran_and_the_source_notices_nothing() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let (id, execution) = busy(&harness).await;
        let (engine, source) = (harness.engine.clone(), id.clone());
        let attached = tokio::spawn(async move {
            let execution = engine.sandbox("test", &source).execute(command("sleep 5; echo over")).await?;
            execution.collect(1000).await
        });
        pass(1000).await;
        let snapshot = take(&harness, &id).await.unwrap();
        assert!(snapshot.memory);
        write(&harness, &id, &execution, "two\n").await;
        assert_eq!(printed(&harness, &id, &execution).await.1, 8);
        assert_eq!(harness.driver.calls(DriverOp::Connect), 2);
        let copy = create_from(&harness, &snapshot.id).await.unwrap();
        let forks = harness.engine.sandbox("test", &id).fork(fork(2), None).await.unwrap();
        let forks: Vec<SandboxId> = forks.iter().map(|status| status.record.id.clone()).collect();
        for (copy, bytes) in [(&copy, 4), (&forks[0], 8), (&forks[1], 8)] {
            assert_eq!(harness.output(copy, COUNT).await, "1\n");
            assert_eq!(printed(&harness, copy, &execution).await, (ExecutionState::Running, bytes));
            harness.engine.sandbox("test", copy).cancel(&execution, AutoResume::Allowed).await.unwrap();
            assert_eq!(printed(&harness, copy, &execution).await.0, ExecutionState::Exited);
        }
        assert_eq!(printed(&harness, &id, &execution).await, (ExecutionState::Running, 8));
        assert_eq!(attached.await.unwrap().unwrap().stdout, "over\n");
        // Without the processes of the snapshot.
        let (mut template, _) = harness.engine.snapshot_template("test", &snapshot.id).await.unwrap();
        template.processes_from = None;
        let cold = harness.engine.create("test", gvisor(), template, None).await.unwrap();
        assert_eq!(harness.run(&cold.record.id, COUNT).await.unwrap().stdout, "0\n");
        assert!(harness.engine.sandbox("test", &cold.record.id).executions().await.unwrap().is_empty());
        // A fork's processes are not kept beside the forks.
        pass(1000).await;
        assert_eq!(left(dir.path()), 5);
        harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
        harness.assert_clean().await;
        pass(1000).await;
        assert_eq!((left(dir.path()), harness.driver.list_snapshots().await.unwrap()), (0, Vec::new()));
    });
}

/// The limit of an execution counts running time, of the source up to the snapshot and of the copy from then on.
#[test]
fn time_limits_continue_in_copies() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let (id, execution) = busy(&harness).await;
        pass(40_000).await;
        let snapshot = take(&harness, &id).await.unwrap();
        pass(3_600_000).await;
        assert_eq!(printed(&harness, &id, &execution).await.0, ExecutionState::Exited);
        let copy = create_from(&harness, &snapshot.id).await.unwrap();
        pass(15_000).await;
        assert_eq!(printed(&harness, &copy, &execution).await.0, ExecutionState::Running);
        pass(10_000).await;
        assert_eq!(printed(&harness, &copy, &execution).await.0, ExecutionState::Exited);
    });
}

#[test]
fn paused_and_hibernated_sandboxes_stay_so() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        for processes in [Processes::Kept, Processes::Stored] {
            let (id, execution) = busy(&harness).await;
            let sandbox = harness.engine.sandbox("test", &id);
            sandbox.pause_with(processes).await.unwrap();
            let presence = harness.driver.traces()[&id];
            let snapshot = take(&harness, &id).await.unwrap();
            assert_eq!(
                (harness.driver.traces()[&id], harness.state(&id).await),
                (presence, Some(SandboxState::Paused))
            );
            let copy = create_from(&harness, &snapshot.id).await.unwrap();
            for id in [&copy, &id] {
                assert_eq!(harness.output(id, COUNT).await, "1\n");
                assert_eq!(printed(&harness, id, &execution).await, (ExecutionState::Running, 4));
            }
            // Ended processes cannot be copied.
            sandbox.pause_with(Processes::Ended).await.unwrap();
            let error = take(&harness, &id).await.unwrap_err();
            assert!(
                matches!(error, EngineError::Hibernation(HibernationError::NotStorable { .. })),
                "{error:?}"
            );
        }
        let container = harness.create().await;
        let error = take(&harness, &container).await.unwrap_err();
        assert!(matches!(error, EngineError::Hibernation(HibernationError::NotStorable { .. })), "{error:?}");
        assert_eq!(harness.output(&container, "echo runs").await, "runs\n");
    });
}

#[test]
fn a_snapshot_that_fails_leaves_the_source_and_its_clients() {
    runtime().block_on(async {
        for fault in [Fault::Before, Fault::After] {
            let dir = tempfile::tempdir().unwrap();
            let harness = Harness::new(with_dir(&dir)).await;
            let (id, execution) = busy(&harness).await;
            harness.driver.fail_next(DriverOp::Capture, fault);
            take(&harness, &id).await.unwrap_err();
            write(&harness, &id, &execution, "two\n").await;
            assert_eq!(printed(&harness, &id, &execution).await, (ExecutionState::Running, 8));
            // The agent does not come back at once. Its executions continue with the next link.
            harness.driver.fail_next(DriverOp::Connect, fault);
            let snapshot = take(&harness, &id).await.unwrap();
            pass(5000).await;
            write(&harness, &id, &execution, "three\n").await;
            assert_eq!(printed(&harness, &id, &execution).await, (ExecutionState::Running, 14));
            for op in [DriverOp::Create, DriverOp::Wake, DriverOp::Connect, DriverOp::DiscardMemory] {
                harness.driver.fail_next(op, fault);
                create_from(&harness, &snapshot.id).await.unwrap_err();
                if op == DriverOp::Connect {
                    // In a fork the source connects first.
                    continue;
                }
                harness.driver.fail_next(op, fault);
                harness.engine.sandbox("test", &id).fork(fork(3), None).await.unwrap_err();
            }
            harness.fail_next_commit();
            create_from(&harness, &snapshot.id).await.unwrap_err();
            pass(1000).await;
            assert_eq!((harness.driver.traces().len(), left(dir.path())), (1, 2));
            harness.engine.delete_snapshot("test", &snapshot.id).await.unwrap();
            harness.assert_clean().await;
            pass(1000).await;
            assert_eq!(left(dir.path()), 0);
        }
    });
}

#[test]
fn a_rollback_continues_the_processes_of_the_snapshot() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let (id, execution) = busy(&harness).await;
        let snapshot = take(&harness, &id).await.unwrap();
        let sandbox = harness.engine.sandbox("test", &id);
        for round in 1..4 {
            harness.run(&id, START_PROCESS).await.unwrap();
            harness.output(&id, "echo later > file").await;
            sandbox.rollback(&snapshot.id).await.unwrap();
            assert_eq!(harness.output(&id, COUNT).await, "1\n");
            assert_eq!(harness.run(&id, "cat file").await.unwrap().exit_code, Some(1));
            // The execution has a successor, which ends with the next rollback.
            assert_eq!(printed(&harness, &id, &execution).await.0, ExecutionState::Lost);
            let all = sandbox.executions().await.unwrap();
            let running: Vec<_> = all.iter().filter(|it| it.state == ExecutionState::Running).collect();
            assert_eq!((all.len(), running.len()), (round + 1, 1));
            assert_eq!(running[0].output.stdout, 4);
        }
        harness.assert_clean().await;
    });
}

#[test]
fn a_rollback_that_fails_has_the_old_processes_or_those_of_the_snapshot() {
    runtime().block_on(async {
        for (op, is_new) in
            [(DriverOp::PrepareDisk, false), (DriverOp::AdoptDisk, true), (DriverOp::Wake, true)]
        {
            for fault in [Fault::Before, Fault::After] {
                let dir = tempfile::tempdir().unwrap();
                let harness = Harness::new(with_dir(&dir)).await;
                let (id, _) = busy(&harness).await;
                let snapshot = take(&harness, &id).await.unwrap();
                harness.run(&id, START_PROCESS).await.unwrap();
                harness.driver.fail_next(op, fault);
                let sandbox = harness.engine.sandbox("test", &id);
                sandbox.rollback(&snapshot.id).await.unwrap_err();
                let expected = if is_new { "1\n" } else { "2\n" };
                assert_eq!(harness.output(&id, COUNT).await, expected, "{op:?} {fault:?}");
                let all = sandbox.executions().await.unwrap();
                let running = all.iter().filter(|it| it.state == ExecutionState::Running).count();
                assert_eq!(running, 1, "{op:?} {fault:?}");
                harness.assert_clean().await;
            }
        }
    });
}

/// The executions of the hibernated processes have the operation numbers of those of the snapshot.
#[test]
fn a_rollback_of_a_hibernated_sandbox_ends_the_executions_of_its_processes() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let harness = Harness::new(with_dir(&dir)).await;
        let (id, execution) = busy(&harness).await;
        let snapshot = take(&harness, &id).await.unwrap();
        write(&harness, &id, &execution, "two\n").await;
        let sandbox = harness.engine.sandbox("test", &id);
        sandbox.pause_with(Processes::Stored).await.unwrap();
        // A rollback that is not committed leaves them.
        harness.fail_next_commit();
        sandbox.rollback(&snapshot.id).await.unwrap_err();
        assert_eq!(harness.output(&id, COUNT).await, "1\n");
        pass(10).await;
        assert_eq!(printed(&harness, &id, &execution).await, (ExecutionState::Running, 8));
        sandbox.pause_with(Processes::Stored).await.unwrap();
        sandbox.rollback(&snapshot.id).await.unwrap();
        pass(30_000).await;
        assert_eq!(printed(&harness, &id, &execution).await, (ExecutionState::Lost, 8));
        let all = sandbox.executions().await.unwrap();
        let running: Vec<_> = all.iter().filter(|it| it.state == ExecutionState::Running).collect();
        assert_eq!((running.len(), running[0].output.stdout), (1, 4));
        assert_eq!(harness.output(&id, COUNT).await, "1\n");
        harness.assert_clean().await;
    });
}

/// The note of a rollback does not mean that the processes are lost.
#[test]
fn restarts_keep_the_processes_of_a_rollback_that_was_woken_halfway() {
    runtime().block_on(async {
        for op in [DriverOp::Wake, DriverOp::Connect] {
            let dir = tempfile::tempdir().unwrap();
            let mut harness = Harness::new(with_dir(&dir)).await;
            let (id, _) = busy(&harness).await;
            let snapshot = take(&harness, &id).await.unwrap();
            harness.run(&id, START_PROCESS).await.unwrap();
            harness.driver.fail_next(op, Fault::After);
            harness.engine.sandbox("test", &id).rollback(&snapshot.id).await.unwrap_err();
            for _ in 0..3 {
                harness.engine.shutdown().await;
                harness.store.open_again();
                let (driver, store) = (harness.driver.clone(), harness.store.clone());
                harness = Harness::over(driver, store, with_dir(&dir), START).await;
                settle().await;
                assert_eq!(harness.state(&id).await, Some(SandboxState::Paused), "{op:?}");
            }
            assert_eq!(harness.output(&id, COUNT).await, "1\n", "{op:?}");
            let all = harness.engine.sandbox("test", &id).executions().await.unwrap();
            let running = all.iter().filter(|it| it.state == ExecutionState::Running).count();
            assert_eq!(running, 1, "{op:?}");
            harness.assert_clean().await;
        }
    });
}

/// What was acknowledged before the crash.
#[derive(Debug, Clone, Default)]
struct Known {
    sandboxes: Vec<SandboxId>,
    snapshot: Option<SnapshotId>,
}

async fn run_client(harness: &Harness, known: &Mutex<Known>) {
    let (id, _) = busy(harness).await;
    known.lock().unwrap().sandboxes.push(id.clone());
    let snapshot = take(harness, &id).await.unwrap().id.clone();
    known.lock().unwrap().snapshot = Some(snapshot.clone());
    let copy = create_from(harness, &snapshot).await.unwrap();
    known.lock().unwrap().sandboxes.push(copy);
    for fork in harness.engine.sandbox("test", &id).fork(fork(2), None).await.unwrap() {
        known.lock().unwrap().sandboxes.push(fork.record.id.clone());
    }
    // In between its processes have ended.
    known.lock().unwrap().sandboxes.retain(|known| *known != id);
    harness.engine.sandbox("test", &id).rollback(&snapshot).await.unwrap();
    known.lock().unwrap().sandboxes.push(id);
}

/// Crashes in the step after `steps`. Returns whether the client finished before.
fn finishes_before_crash(steps: usize, fault: Fault) -> bool {
    let (driver, store, dir) = (FakeDriver::new(), MemoryStore::new(), tempfile::tempdir().unwrap());
    let known = Mutex::new(Known::default());
    let network = FakeNetwork::with_driver(&driver);
    driver.crash_after(steps, fault);
    let first = runtime();
    let finished = first.block_on(async {
        let opening =
            Harness::over_all(driver.clone(), store.clone(), network.clone(), with_dir(&dir), START);
        let living = async { run_client(&opening.await, &known).await };
        tokio::time::timeout(Duration::from_millis(500), living).await.is_ok()
    });
    drop(first);
    driver.stop_crashing();
    store.open_again();
    let Known { sandboxes, snapshot } = known.into_inner().unwrap();
    runtime().block_on(async {
        let start = START.after(1000);
        let harness = Harness::over_all(driver, store, network, with_dir(&dir), start).await;
        settle().await;
        for id in &sandboxes {
            assert_eq!(harness.output(id, COUNT).await, "1\n", "after {steps} steps, {fault:?}");
        }
        if let Some(snapshot) = snapshot {
            let copy = create_from(&harness, &snapshot).await.unwrap();
            assert_eq!(harness.output(&copy, COUNT).await, "1\n", "after {steps} steps, {fault:?}");
            harness.engine.delete_snapshot("test", &snapshot).await.unwrap();
        }
        let all = rules::snapshot_query([]).unwrap();
        for record in harness.engine.list_snapshots("test", &all).0 {
            harness.engine.delete_snapshot("test", &record.id).await.unwrap();
        }
        harness.assert_clean().await;
        pass(1000).await;
        let found = (left(dir.path()), harness.driver.list_snapshots().await.unwrap());
        assert_eq!(found, (0, Vec::new()), "after {steps} steps, {fault:?}");
    });
    finished
}

#[test]
fn a_crash_at_any_step_loses_nothing_and_leaves_nothing() {
    for fault in [Fault::Before, Fault::After] {
        let steps = (0..300).find(|steps| finishes_before_crash(*steps, fault)).expect("the client finishes");
        assert!(steps > 20, "only {steps} steps were tried");
    }
}
