//! Hibernation: its failures, and crashes of the daemon before and after every step. What was acknowledged is never lost.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::{Isolation, SandboxConfig, SandboxId, SandboxState};
use driver::Presence;
use driver::fake::{DriverOp, Fault};
use engine::{
    DetachedRequest, DetachedSettings, EngineError, EngineSettings, ExecutionState, HibernationError,
    HostSample, HostWatch, Processes,
};
use rules::{AutoResume, OutputPosition};

use crate::harness::{Harness, MINUTE, config, finishes_before_crash, pass, settings};

const START_PROCESS: &str = "sleep 1000 >/dev/null 2>&1 &";
const COUNT: &str = "pgrep -c sleep";

fn gvisor() -> SandboxConfig {
    SandboxConfig { isolation: Isolation::Gvisor, ..config() }
}

async fn with_process(harness: &Harness) -> SandboxId {
    let id = harness.create_with(gvisor()).await.unwrap();
    harness.run(&id, START_PROCESS).await.unwrap();
    id
}

async fn hibernate(harness: &Harness, id: &SandboxId) -> Result<(), EngineError> {
    harness.engine.sandbox("test", id).pause_with(Processes::Stored).await.map(drop)
}

async fn is_hibernated(harness: &Harness, id: &SandboxId) -> bool {
    let status = harness.engine.sandbox("test", id).status().await.unwrap();
    status.state() == SandboxState::Paused && status.record.lifecycle.hibernated_at().is_some()
}

fn presence(harness: &Harness, id: &SandboxId) -> Presence {
    harness.driver.traces()[id]
}

#[tokio::test(start_paused = true)]
async fn a_hibernated_sandbox_holds_only_its_disk_and_wakes_for_a_command() {
    let harness = Harness::new(settings()).await;
    let id = with_process(&harness).await;
    let (_, _, disk) = harness.used();
    hibernate(&harness, &id).await.unwrap();
    assert!(is_hibernated(&harness, &id).await);
    assert_eq!((presence(&harness, &id), harness.used()), (Presence::Hibernated, (0, 0, disk)));
    assert!(harness.network.links().is_empty());
    hibernate(&harness, &id).await.unwrap();
    assert_eq!(harness.driver.calls(DriverOp::Hibernate), 1);
    assert_eq!(harness.output(&id, COUNT).await, "1\n");
    assert!(!is_hibernated(&harness, &id).await);
    assert_eq!(harness.driver.calls(DriverOp::DiscardMemory), 1);
    // A cold resume ends the processes.
    hibernate(&harness, &id).await.unwrap();
    harness.engine.sandbox("test", &id).resume_with(Processes::Ended).await.unwrap();
    assert_eq!(harness.run(&id, COUNT).await.unwrap().stdout, "0\n");
    let last = harness.life(&id).await.pop().unwrap();
    assert_eq!(last.data["note"], "its processes were discarded; its disk is unchanged");
    harness.assert_clean().await;
}

/// Containers stay in memory, which is offered to swap space once for each pause.
#[tokio::test(start_paused = true)]
async fn the_timer_pages_out_containers() {
    let harness = Harness::new(EngineSettings { hibernate_after_ms: MINUTE, ..settings() }).await;
    let id = harness.create().await;
    for count in 1..3 {
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        pass(MINUTE - 1000).await;
        assert_eq!(harness.driver.calls(DriverOp::PageOut), count - 1);
        pass(5 * MINUTE).await;
        assert_eq!(harness.driver.calls(DriverOp::PageOut), count);
        assert_eq!(presence(&harness, &id), Presence::Paused);
        assert!(!is_hibernated(&harness, &id).await);
        harness.engine.sandbox("test", &id).resume().await.unwrap();
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_timer_hibernates_what_stays_paused_without_work() {
    let harness = Harness::new(EngineSettings { hibernate_after_ms: MINUTE, ..settings() }).await;
    let id = with_process(&harness).await;
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(MINUTE - 1000).await;
    assert!(!is_hibernated(&harness, &id).await);
    pass(2000).await;
    assert!(is_hibernated(&harness, &id).await);
    // A command that a client waits for keeps the processes in memory.
    let running = tokio::spawn({
        let (engine, id) = (harness.engine.clone(), id.clone());
        async move {
            let execution =
                engine.sandbox("test", &id).execute(crate::harness::command("sleep 30; echo over")).await?;
            execution.collect(1000).await
        }
    });
    pass(1000).await;
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(10 * MINUTE).await;
    assert!(!is_hibernated(&harness, &id).await);
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    assert_eq!(running.await.unwrap().unwrap().stdout, "over\n");
    // Containers stay in memory.
    let container = harness.create().await;
    harness.engine.sandbox("test", &container).pause().await.unwrap();
    pass(10 * MINUTE).await;
    assert_eq!(presence(&harness, &container), Presence::Paused);
    let error = hibernate(&harness, &container).await.unwrap_err();
    assert!(matches!(error, EngineError::Hibernation(HibernationError::NotStorable { .. })), "{error:?}");
    assert_eq!(
        error.to_string(),
        "the processes of the sandbox cannot be stored: its isolation is 'container'; create it with isolation 'gvisor'"
    );
    harness.assert_clean().await;
}

/// No client waits for a detached command. One that is attached to it does.
#[tokio::test(start_paused = true)]
async fn the_timer_hibernates_detached_commands_without_clients() {
    let dir = tempfile::tempdir().unwrap();
    let detached = DetachedSettings::in_dir(dir.path().to_owned());
    let settings = EngineSettings { hibernate_after_ms: MINUTE, detached, ..settings() };
    let harness = Harness::new(settings).await;
    let id = harness.create_with(gvisor()).await.unwrap();
    let request =
        DetachedRequest { command: "sleep 1000".to_owned(), auto_resume: true, ..DetachedRequest::default() };
    let execution = harness.engine.sandbox("test", &id).start_detached(request).await.unwrap().id;
    let beginning = OutputPosition { stdout: 0, stderr: 0 };
    let attached =
        harness.engine.sandbox("test", &id).attach(&execution, beginning, AutoResume::Allowed).await.unwrap();
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(10 * MINUTE).await;
    assert!(!is_hibernated(&harness, &id).await);
    drop(attached);
    pass(1000).await;
    assert!(is_hibernated(&harness, &id).await);
    harness.engine.sandbox("test", &id).resume().await.unwrap();
    pass(1000).await;
    let status = harness.engine.sandbox("test", &id).execution(&execution).await.unwrap();
    assert_eq!(status.state, ExecutionState::Running);
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    pass(MINUTE - 1000).await;
    assert!(!is_hibernated(&harness, &id).await);
    pass(2000).await;
    assert!(is_hibernated(&harness, &id).await);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn lack_of_memory_hibernates_what_is_paused_longest_first() {
    let available = Arc::new(AtomicU64::new(u64::MAX));
    let seen = Arc::clone(&available);
    let sample = move || {
        let memory_available_bytes = seen.load(Ordering::Relaxed);
        Ok(HostSample { disk_free_bytes: 1 << 50, unwritten_bytes: 0, memory_available_bytes })
    };
    let host = Some(HostWatch::new(sample, 0, 1024));
    let harness = Harness::new(EngineSettings { host, ..settings() }).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(with_process(&harness).await);
    }
    // The first one stays running.
    let order = [2, 1, 3].map(|n: usize| ids[n].clone());
    for id in &order {
        harness.engine.sandbox("test", id).pause().await.unwrap();
        pass(1000).await;
    }
    pass(MINUTE).await;
    assert_eq!(harness.driver.calls(DriverOp::Hibernate), 0);
    available.store(0, Ordering::Relaxed);
    let mut hibernated = Vec::new();
    for _ in 0..10_000 {
        pass(10).await;
        for id in &order {
            if !hibernated.contains(id) && is_hibernated(&harness, id).await {
                hibernated.push(id.clone());
            }
        }
    }
    assert_eq!(hibernated, order);
    assert_eq!(harness.state(&ids[0]).await, Some(SandboxState::Running));
    let last = harness.life(&order[0]).await.pop().unwrap();
    assert_eq!((last.kind.as_str(), &last.data["reason"]), ("sandbox.hibernated", &"memory_pressure".into()));
    available.store(u64::MAX, Ordering::Relaxed);
    pass(MINUTE).await;
    assert_eq!(harness.output(&order[0], COUNT).await, "1\n");
}

#[tokio::test(start_paused = true)]
async fn a_failed_hibernation_leaves_the_processes() {
    let harness = Harness::new(settings()).await;
    for (is_paused, is_repeated) in [(false, false), (true, true), (true, false)] {
        let id = with_process(&harness).await;
        let policy = harness.network.policy(&id);
        assert!(policy.is_some());
        if is_paused {
            harness.engine.sandbox("test", &id).pause().await.unwrap();
        }
        let before = (harness.state(&id).await, presence(&harness, &id));
        harness.driver.fail_next(DriverOp::Hibernate, Fault::Before);
        hibernate(&harness, &id).await.unwrap_err();
        assert_eq!((harness.state(&id).await, presence(&harness, &id)), before);
        // The processes are stored, and the record does not say so.
        harness.fail_next_commit();
        hibernate(&harness, &id).await.unwrap_err();
        assert_eq!(presence(&harness, &id), Presence::Hibernated);
        if is_repeated {
            hibernate(&harness, &id).await.unwrap();
        }
        assert_eq!(harness.output(&id, COUNT).await, "1\n");
        assert_eq!(harness.network.policy(&id), policy, "paused: {is_paused}, repeated: {is_repeated}");
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_wake_keeps_what_is_stored() {
    let harness = Harness::new(settings()).await;
    let id = with_process(&harness).await;
    hibernate(&harness, &id).await.unwrap();
    let sandbox = harness.engine.sandbox("test", &id);
    for fault in [Fault::Before, Fault::After] {
        harness.driver.fail_next(DriverOp::Wake, fault);
        let error = sandbox.resume().await.unwrap_err();
        assert!(
            matches!(error, EngineError::Hibernation(HibernationError::WakeFailed(_))),
            "{fault:?}: {error:?}"
        );
        assert!(is_hibernated(&harness, &id).await);
        // Processes that ran are frozen as they are: what is stored is older than the disk.
        harness.driver.fail_next(DriverOp::Connect, fault);
        let error = sandbox.resume().await.unwrap_err();
        assert!(
            matches!(error, EngineError::Hibernation(HibernationError::WakeFailed(_))),
            "{fault:?}: {error:?}"
        );
        assert_eq!(presence(&harness, &id), Presence::Paused);
        assert_eq!(harness.output(&id, COUNT).await, "1\n");
        hibernate(&harness, &id).await.unwrap();
        harness.fail_next_commit();
        sandbox.resume().await.unwrap_err();
        assert_eq!(presence(&harness, &id), Presence::Paused);
        assert_eq!(harness.output(&id, COUNT).await, "1\n");
        hibernate(&harness, &id).await.unwrap();
    }
    assert_eq!(harness.output(&id, COUNT).await, "1\n");
    harness.assert_clean().await;
}

/// What was acknowledged before the crash.
#[derive(Debug, Clone, PartialEq)]
struct Known {
    id: SandboxId,
    is_hibernated: Option<bool>,
}

async fn run_client(harness: &Harness, known: &Mutex<Option<Known>>) {
    let id = with_process(harness).await;
    let acknowledge = |is_hibernated: Option<bool>| {
        *known.lock().unwrap() = Some(Known { id: id.clone(), is_hibernated });
    };
    acknowledge(None);
    for is_paused in [false, true] {
        if is_paused {
            harness.engine.sandbox("test", &id).pause().await.unwrap();
        }
        hibernate(harness, &id).await.unwrap();
        acknowledge(Some(true));
        acknowledge(None);
        harness.engine.sandbox("test", &id).resume().await.unwrap();
        acknowledge(Some(false));
        acknowledge(None);
    }
}

#[test]
fn a_crash_at_any_step_keeps_the_processes() {
    for fault in [Fault::Before, Fault::After] {
        let check = async |steps: usize, harness: &Harness, known: Option<Known>| {
            if let Some(Known { id, is_hibernated: expected }) = known {
                if let Some(expected) = expected {
                    assert_eq!(is_hibernated(harness, &id).await, expected, "after {steps} steps, {fault:?}");
                }
                assert_eq!(harness.output(&id, COUNT).await, "1\n", "after {steps} steps, {fault:?}");
            }
            harness.assert_clean().await;
        };
        let finishes = |steps: &usize| {
            finishes_before_crash((*steps, fault), run_client, async |harness, known| {
                check(*steps, harness, known).await;
            })
        };
        let steps = (0..200).find(finishes).expect("the client finishes");
        assert!(steps > 12, "only {steps} steps were tried");
    }
}
