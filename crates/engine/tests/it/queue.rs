use std::time::Duration;

use engine::{
    AgentError, CapacityError, DaemonError, DetachedRequest, EngineError, EngineSettings, ExecutionError,
    SandboxError,
};
use rules::AutoResume;

use crate::harness::{Harness, MINUTE, SECOND, command, pass, runtime, settings, settle};

fn one_and_two() -> EngineSettings {
    EngineSettings { concurrent_executions: 1, execution_queue: 2, ..settings() }
}

#[tokio::test(start_paused = true)]
async fn commands_wait_in_order_and_excess_ones_are_refused() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let begin = tokio::time::Instant::now();
    let timed = |text| {
        let running = harness.run(&id, text);
        async move {
            let result = running.await;
            (result, begin.elapsed().as_secs())
        }
    };
    let (first, second, third, fourth) =
        tokio::join!(timed("sleep 10"), timed("sleep 20"), timed("sleep 30"), timed("sleep 40"));
    assert_eq!((first.0.unwrap().exit_code, first.1), (Some(0), 10));
    assert_eq!((second.0.unwrap().exit_code, second.1), (Some(0), 30));
    assert_eq!((third.0.unwrap().exit_code, third.1), (Some(0), 60));
    assert!(matches!(fourth.0, Err(EngineError::Execution(ExecutionError::TooMany(_)))), "{fourth:?}");
    harness.assert_clean().await;
}

/// A detached command that waits for its slot takes none of the attached ones, and the other way round.
#[test]
fn attached_and_detached_commands_have_slots_and_queues_of_their_own() {
    runtime().block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let detached = engine::DetachedSettings::in_dir(dir.path().join("executions"));
        let settings =
            EngineSettings { detached, detached_executions: 1, execution_queue: 1, ..one_and_two() };
        let harness = Harness::new(settings).await;
        let id = harness.create().await;
        let sandbox = harness.engine.sandbox("test", &id);
        let detach = |text: &str| {
            let (command, auto_resume) = (text.to_owned(), true);
            sandbox.start_detached(DetachedRequest { command, auto_resume, ..DetachedRequest::default() })
        };
        let first = detach("sleep 1000").await.unwrap();
        let waiting = detach("true");
        let meanwhile = async {
            settle().await;
            let refused = detach("true").await;
            assert!(
                matches!(refused, Err(EngineError::Execution(ExecutionError::TooMany(_)))),
                "{refused:?}"
            );
            assert_eq!(harness.output(&id, "echo attached").await, "attached\n");
            let running = sandbox.execute(command("sleep 100")).await.unwrap();
            // The slot of a detached command goes to the detached one that waits.
            sandbox.cancel(&first.id, AutoResume::Allowed).await.unwrap();
            running
        };
        let (second, running) = tokio::join!(waiting, meanwhile);
        second.unwrap();
        drop(running);
        harness.assert_clean().await;
    });
}

#[tokio::test(start_paused = true)]
async fn a_command_that_times_out_in_the_queue_is_not_started() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let short = api::ExecuteRequest { timeout_ms: 5 * SECOND, ..command("true") };
    let (long, short) = tokio::join!(harness.run(&id, "sleep 10"), harness.request(&id, short));
    assert_eq!(long.unwrap().exit_code, Some(0));
    assert!(matches!(short, Err(EngineError::Execution(ExecutionError::NeverStarted(_)))), "{short:?}");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_command_leaves_the_queue() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let running = harness.engine.sandbox("test", &id).execute(command("sleep 100")).await.unwrap();
    for _ in 0..5 {
        let waiting = harness.engine.sandbox("test", &id).execute(command("true"));
        assert!(tokio::time::timeout(Duration::from_secs(1), waiting).await.is_err(), "it should wait");
    }
    let (long, next) = tokio::join!(running.collect(10), harness.run(&id, "echo next"));
    assert_eq!(long.unwrap().exit_code, Some(0));
    assert_eq!(next.unwrap().stdout, "next\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_outlives_a_broken_link() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let running = harness.run(&id, "sleep 10");
    let waiting = async {
        pass(SECOND).await;
        harness.run(&id, "echo waited").await
    };
    let breaking = async {
        pass(2 * SECOND).await;
        harness.driver.hang_up(&id);
    };
    let (running, waiting, ()) = tokio::join!(running, waiting, breaking);
    // The outcome of the first command is unknown.
    assert!(matches!(running, Err(EngineError::Agent(AgentError::Failed(_)))), "{running:?}");
    assert_eq!(waiting.unwrap().stdout, "waited\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn queued_commands_end_with_the_sandbox() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let ending = async {
        pass(SECOND).await;
        harness.engine.sandbox("test", &id).terminate("request").await
    };
    let (running, waiting, ending) =
        tokio::join!(harness.run(&id, "sleep 100"), harness.run(&id, "true"), ending);
    assert_eq!(running.unwrap().signal.as_deref(), Some("SIGKILL"));
    assert!(
        matches!(waiting, Err(EngineError::Sandbox(SandboxError::NotFound { terminated: Some(_) }))),
        "{waiting:?}"
    );
    ending.unwrap();
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn queued_commands_continue_after_a_resume() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let turning = async {
        pass(SECOND).await;
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        pass(MINUTE).await;
        harness.engine.sandbox("test", &id).resume().await.unwrap();
    };
    let (running, waiting, ()) =
        tokio::join!(harness.run(&id, "sleep 5"), harness.run(&id, "echo waited"), turning);
    assert_eq!(running.unwrap().exit_code, Some(0));
    assert_eq!(waiting.unwrap().stdout, "waited\n");
    harness.assert_clean().await;
}

/// The slot becomes free during the pause, because the client of its command goes away.
async fn turn_while_paused(harness: &Harness, id: &api::SandboxId, waiting: api::ExecuteRequest) -> Turn {
    let running = harness.engine.sandbox("test", id).execute(command("sleep 200")).await.unwrap();
    let leaving = async {
        pass(SECOND).await;
        harness.engine.sandbox("test", id).pause().await.unwrap();
        pass(SECOND).await;
        drop(running);
    };
    tokio::join!(harness.request(id, waiting), leaving).0
}

type Turn = Result<api::ExecutionResult, EngineError>;

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_during_a_pause_resumes_the_sandbox() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let turn = turn_while_paused(&harness, &id, command("echo turn")).await;
    assert_eq!(turn.unwrap().stdout, "turn\n");
    assert_eq!(harness.state(&id).await, Some(api::SandboxState::Running));
    // A command that forbids the resume is refused, and the slot is free again.
    let forbids = api::ExecuteRequest { auto_resume: false, ..command("true") };
    let turn = turn_while_paused(&harness, &id, forbids).await;
    assert!(
        matches!(
            turn,
            Err(EngineError::Sandbox(SandboxError::Refused(rules::OperationRefusal::InvalidState { .. })))
        ),
        "{turn:?}"
    );
    assert_eq!(harness.state(&id).await, Some(api::SandboxState::Paused));
    assert_eq!(harness.output(&id, "echo free").await, "free\n");
    // The sandbox is not resumed for a caller that is gone.
    let short = api::ExecuteRequest { timeout_ms: 1500, ..command("true") };
    let turn = turn_while_paused(&harness, &id, short).await;
    assert!(matches!(turn, Err(EngineError::Execution(ExecutionError::NeverStarted(_)))), "{turn:?}");
    settle().await;
    assert_eq!(harness.state(&id).await, Some(api::SandboxState::Paused));
    assert_eq!(harness.output(&id, "echo free").await, "free\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_is_freed_after_a_process_loss_starts_the_sandbox() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    harness.output(&id, "echo kept > file").await;
    let running = harness.run(&id, "sleep 200");
    let crashing = async {
        pass(SECOND).await;
        harness.driver.crash(&id);
    };
    let (running, waiting, ()) = tokio::join!(running, harness.run(&id, "cat file"), crashing);
    assert!(matches!(running, Err(EngineError::Agent(AgentError::Failed(_)))), "{running:?}");
    assert_eq!(waiting.unwrap().stdout, "kept\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_command_without_capacity_is_refused_and_the_next_is_tried() {
    let room = rules::Capacity { cpu: 2, memory_mb: 65_536, disk_mb: 65_536 };
    let harness = Harness::new(EngineSettings { capacity: room, ..one_and_two() }).await;
    let id = harness.create().await;
    let running = harness.engine.sandbox("test", &id).execute(command("sleep 200")).await.unwrap();
    let taking = async {
        pass(SECOND).await;
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        let other = harness.create().await;
        drop(running);
        other
    };
    let (first, second, other) = tokio::join!(harness.run(&id, "true"), harness.run(&id, "true"), taking);
    for turn in [first, second] {
        assert!(matches!(turn, Err(EngineError::Capacity(CapacityError::NoCapacity(_)))), "{turn:?}");
    }
    assert_eq!(harness.engine.metrics().counts.refused_capacity, 2);
    harness.engine.sandbox("test", &other).pause().await.unwrap();
    assert_eq!(harness.output(&id, "echo room").await, "room\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_does_not_wait_for_commands() {
    let harness = Harness::new(one_and_two()).await;
    let id = harness.create().await;
    let execution = harness.engine.sandbox("test", &id).execute(command("sleep 200")).await.unwrap();
    let stopping = async {
        settle().await;
        let begin = tokio::time::Instant::now();
        harness.engine.shutdown().await;
        begin.elapsed()
    };
    let (waiting, took) = tokio::join!(harness.run(&id, "true"), stopping);
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert!(matches!(waiting, Err(EngineError::Daemon(DaemonError::Stopping))), "{waiting:?}");
    // A sandbox that keeps running is not "not found".
    let error = harness.engine.sandbox("test", &id).status().await.unwrap_err();
    assert!(matches!(error, EngineError::Daemon(DaemonError::Stopping)), "{error:?}");
    assert_eq!(harness.driver.traces().len(), 1);
    drop(execution);
}
