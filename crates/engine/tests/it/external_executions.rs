//! Executions that clients of the engine carry out themselves, on a fake host.

use std::time::Duration;

use api::ExecuteRequest;
use engine::{AgentError, EngineError, Exit};
use rules::AutoResume;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::*;

#[tokio::test(start_paused = true)]
async fn a_client_runs_programs_and_dials_ports_under_one_admission() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let admission = harness.engine.sandbox("test", &id).admit_execution(AutoResume::Allowed).await.unwrap();
    let run = async |text: &str| {
        admission.run_program(&["bash", "-c", "--", text], Duration::from_secs(30)).await.unwrap()
    };
    assert_eq!(run("echo here > file").await, Some(Exit::Code(0)));
    assert_eq!(harness.output(&id, "cat file").await, "here\n");
    assert_eq!(run("exit 3").await, Some(Exit::Code(3)));
    assert_eq!(run("sleep 31").await, None);
    let refused = admission.dial(80).await.err().unwrap();
    assert!(matches!(refused, EngineError::Agent(AgentError::PortUnreachable { .. })), "{refused:?}");
    drop(admission);
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_external_execution_has_the_events_of_a_command() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let sandbox = || harness.engine.sandbox("test", &id);
    let (admission, mut execution) = sandbox().begin_external(&command("x = 1")).await.unwrap();
    execution.started();
    execution.count(5, 2);
    execution.completed(1);
    // The first end is the one that counts.
    drop((admission, execution));
    let (_admission, execution) = sandbox().begin_external(&command("y = 2")).await.unwrap();
    drop(execution);
    let mut events = harness.events(&id).await;
    events.retain(|event| event.kind.starts_with("exec."));
    let found = |field: &str| events.iter().map(|event| event.data[field].clone()).collect::<Vec<_>>();
    let kinds: Vec<&str> = events.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["exec.started", "exec.completed", "exec.error"]);
    assert_eq!(found("command"), [json!("x = 1"), json!("x = 1"), json!("y = 2")]);
    assert_eq!(found("exitCode")[1], json!(1));
    assert_eq!((&found("stdoutBytes")[1], &found("stderrBytes")[1]), (&json!(5), &json!(2)));
}

#[tokio::test(start_paused = true)]
async fn the_time_limit_of_an_external_execution_stands_still_during_a_pause() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let sandbox = || harness.engine.sandbox("test", &id);
    let request = ExecuteRequest { timeout_ms: MINUTE, ..command("while True: pass") };
    let (_admission, mut execution) = sandbox().begin_external(&request).await.unwrap();
    execution.started();
    let begun = Instant::now();
    let pausing = async {
        pass(10 * SECOND).await;
        sandbox().pause().await.unwrap();
        pass(HOUR).await;
        sandbox().resume().await.unwrap();
    };
    let (ended, ()) = tokio::join!(execution.within(std::future::pending::<()>()), pausing);
    assert_eq!(ended, None);
    let expected = Duration::from_millis(HOUR + MINUTE);
    let elapsed = begun.elapsed();
    assert!(elapsed >= expected && elapsed < expected + Duration::from_secs(1), "{elapsed:?}");
}
