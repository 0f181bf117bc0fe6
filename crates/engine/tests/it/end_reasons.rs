//! Why commands end: the reasons and messages of results, of detached executions and of events.

use api::{EndReason, ExecuteRequest, ExecutionResult, SandboxId};
use driver::fake::DriverOp;
use engine::{
    AgentError, DetachedRequest, DetachedSettings, EngineError, EngineSettings, ExecutionEvent,
    ExecutionState, ExecutionStatus, OutputEvent,
};
use rules::OutputPosition;

use crate::harness::{Harness, SECOND, command, pass, runtime, settings, settle, two_daemons};

fn ending(result: &ExecutionResult) -> (Option<EndReason>, &str) {
    (result.reason, result.message.as_deref().unwrap_or_default())
}

/// The reason in the event of the last command that ended.
async fn recorded_reason(harness: &Harness, id: &SandboxId) -> serde_json::Value {
    settle().await;
    let events = harness.events(id).await;
    let ended = events.iter().rev().find(|event| event.kind == "exec.completed").unwrap();
    ended.data["reason"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_result_says_what_killed_its_command() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    for own in ["true", "exit 3", "exit 129", "exit 255"] {
        assert_eq!(ending(&harness.run(&id, own).await.unwrap()), (None, ""), "{own}");
    }
    assert_eq!(recorded_reason(&harness, &id).await, serde_json::Value::Null);
    let limited = ExecuteRequest { timeout_ms: 10 * SECOND, ..command("sleep 300") };
    let timed_out = harness.request(&id, limited).await.unwrap();
    let message = "the command was killed at its timeoutMs of 10000";
    assert_eq!(ending(&timed_out), (Some(EndReason::Timeout), message));
    assert_eq!(recorded_reason(&harness, &id).await, "timeout");
    for killed in ["kill -9 $$", "exit 137"] {
        let result = harness.run(&id, killed).await.unwrap();
        assert_eq!(
            ending(&result),
            (Some(EndReason::Signal), "the command was killed by SIGKILL"),
            "{killed}"
        );
    }
    let (terminated, ()) = tokio::join!(harness.run(&id, "sleep 300"), async {
        pass(SECOND).await;
        harness.engine.sandbox("test", &id).terminate("deleted").await.unwrap();
    });
    let terminated = terminated.unwrap();
    assert_eq!((terminated.exit_code, terminated.signal.as_deref()), (None, Some("SIGKILL")));
    let message = format!("sandbox '{id}' was terminated: its termination was requested");
    assert_eq!(ending(&terminated), (Some(EndReason::Terminated), message.as_str()));
    harness.assert_clean().await;
}

/// A slow client reads the output long after the end.
#[tokio::test(start_paused = true)]
async fn a_command_that_ends_before_its_timeout_has_not_timed_out() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let limited = ExecuteRequest { timeout_ms: 10 * SECOND, ..command("kill -9 $$") };
    let mut running = harness.engine.sandbox("test", &id).execute(limited).await.unwrap();
    pass(20 * SECOND).await;
    let ExecutionEvent::Done(finished) = running.next().await else { panic!("it has printed nothing") };
    assert_eq!(finished.outcome.reason, Some(EndReason::Signal));
    drop(running);
    harness.assert_clean().await;
}

/// The processes of a terminated sandbox end one after the other, and the agent may be the last.
#[tokio::test(start_paused = true)]
async fn a_command_that_ends_before_the_agent_of_a_terminated_sandbox_has_its_reason() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let held = harness.driver.hold(DriverOp::Kill);
    let running = async {
        let result = harness.run(&id, "sleep 5; kill -9 $$").await.unwrap();
        drop(held);
        result
    };
    let terminating = async {
        pass(SECOND).await;
        harness.engine.sandbox("test", &id).terminate("deleted").await.unwrap();
    };
    let (result, ()) = tokio::join!(running, terminating);
    assert_eq!((result.reason, result.signal.as_deref()), (Some(EndReason::Terminated), Some("SIGKILL")));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn commands_that_are_killed_while_memory_runs_out_name_the_limit() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    // A kill before a command has nothing to do with it.
    harness.driver.kill_for_memory(&id);
    assert_eq!(harness.run(&id, "kill -9 $$").await.unwrap().reason, Some(EndReason::Signal));
    let [bash, program, own] =
        ["sleep 5; kill -9 $$", "sleep 6; exit 137", "sleep 7; exit 1"].map(|text| harness.run(&id, text));
    let (bash, program, own, ()) = tokio::join!(bash, program, own, async {
        pass(SECOND).await;
        harness.driver.kill_for_memory(&id);
    });
    for killed in [bash.unwrap(), program.unwrap()] {
        let (reason, message) = ending(&killed);
        assert_eq!(reason, Some(EndReason::Oom));
        assert!(message.contains("ran out of memory at its limit of 2048 MB"), "{message}");
    }
    assert_eq!(ending(&own.unwrap()), (None, ""));
    harness.assert_clean().await;
}

/// As under gVisor, whose kernel is the process that is killed.
#[tokio::test(start_paused = true)]
async fn a_sandbox_that_ends_for_lack_of_memory_says_so() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    for kills in [1, 0] {
        let (result, ()) = tokio::join!(harness.run(&id, "sleep 300"), async {
            pass(SECOND).await;
            (0..kills).for_each(|_| harness.driver.kill_for_memory(&id));
            harness.driver.crash(&id);
        });
        let event = harness.life(&id).await.pop().unwrap();
        assert_eq!(event.kind, "sandbox.error");
        let is_named = event.data["message"].as_str().unwrap().contains("resources.memoryMb is 2048");
        assert_eq!(is_named, kills > 0, "{event:?}");
        match result {
            Ok(result) => {
                assert_eq!((kills, result.exit_code, result.signal.as_deref()), (1, None, Some("SIGKILL")));
                assert_eq!(result.reason, Some(EndReason::Oom));
            }
            Err(error) => {
                assert!(
                    kills == 0 && matches!(error, EngineError::Agent(AgentError::Failed(_))),
                    "{error:?}"
                );
            }
        }
    }
    harness.assert_clean().await;
}

/// Starts an execution, lets something happen, and waits for the end.
async fn end_of(
    harness: &Harness,
    id: &SandboxId,
    request: DetachedRequest,
    meanwhile: impl AsyncFnOnce(),
) -> ExecutionStatus {
    let started = harness.engine.sandbox("test", id).start_detached(request).await.unwrap();
    let beginning = OutputPosition { stdout: 0, stderr: 0 };
    let mut reader = harness.engine.sandbox("test", id).follow(&started.id, beginning).await.unwrap();
    pass(SECOND).await;
    meanwhile().await;
    loop {
        if let OutputEvent::Ended(status) = reader.next().await.unwrap() {
            return *status;
        }
    }
}

#[test]
fn a_detached_execution_says_what_killed_it() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let detached = DetachedSettings::in_dir(dir.path().join("executions"));
        let harness = Harness::new(EngineSettings { detached, ..settings() }).await;
        let id = harness.create().await;
        let request = |command: &str| DetachedRequest {
            command: command.to_owned(),
            auto_resume: true,
            ..DetachedRequest::default()
        };
        let limited = DetachedRequest { timeout_ms: Some(5 * SECOND), ..request("sleep 1000") };
        let message = |status: &ExecutionStatus| status.message.clone().unwrap_or_default();

        let own = end_of(&harness, &id, request("exit 3"), async || {}).await;
        assert_eq!((own.state, own.reason, own.message), (ExecutionState::Exited, None, None));
        let timed_out = end_of(&harness, &id, limited, async || {}).await;
        assert_eq!(timed_out.reason, Some(EndReason::Timeout));
        assert!(message(&timed_out).contains("timeoutMs of 5000"), "{timed_out:?}");
        assert_eq!(recorded_reason(&harness, &id).await, "timeout");
        let killed = end_of(&harness, &id, request("kill -9 $$"), async || {}).await;
        assert_eq!(killed.reason, Some(EndReason::Signal));
        let out_of_memory = end_of(&harness, &id, request("sleep 5; exit 137"), async || {
            harness.driver.kill_for_memory(&id);
        });
        let out_of_memory = out_of_memory.await;
        assert_eq!(out_of_memory.reason, Some(EndReason::Oom));
        assert!(message(&out_of_memory).contains("2048 MB"), "{out_of_memory:?}");

        let crash = async || harness.driver.crash(&id);
        let lost = end_of(&harness, &id, request("sleep 1000"), crash).await;
        assert_eq!((lost.state, lost.reason), (ExecutionState::Lost, None));
        assert!(message(&lost).contains(&format!("sandbox '{id}': its processes ended")), "{lost:?}");
        let ended_for_memory = end_of(&harness, &id, request("sleep 1000"), async || {
            harness.driver.kill_for_memory(&id);
            harness.driver.crash(&id);
        });
        let ended_for_memory = ended_for_memory.await;
        assert_eq!(
            (ended_for_memory.state, ended_for_memory.signal.as_deref()),
            (ExecutionState::Exited, Some("SIGKILL"))
        );
        assert_eq!(ended_for_memory.reason, Some(EndReason::Oom));

        let terminated = end_of(&harness, &id, request("sleep 1000"), async || {
            harness.engine.sandbox("test", &id).terminate("timeout").await.unwrap();
        });
        let terminated = terminated.await;
        assert_eq!(terminated.reason, Some(EndReason::Terminated));
        let why = format!("sandbox '{id}' was terminated: its timeout ended");
        assert_eq!(message(&terminated), why);
        harness.assert_clean().await;
    });
}

/// The count of a paused sandbox is older than the daemon.
#[test]
fn kills_of_before_a_restart_are_not_counted_again() {
    let sampled =
        || EngineSettings { sample_interval: Some(std::time::Duration::from_secs(5)), ..settings() };
    let first = async |harness: &Harness| {
        let id = harness.create().await;
        harness.driver.kill_for_memory(&id);
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        id
    };
    let second = async |harness: &Harness, id: SandboxId| {
        let counted = || harness.engine.metrics().counts.memory_kills;
        pass(6 * SECOND).await;
        harness.output(&id, "true").await;
        pass(6 * SECOND).await;
        assert_eq!(counted(), 0);
        harness.driver.kill_for_memory(&id);
        pass(6 * SECOND).await;
        assert_eq!(counted(), 1);
    };
    two_daemons((sampled(), first), (sampled(), second));
}
