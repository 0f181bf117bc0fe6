use std::time::Duration;

use api::SandboxState;
use driver::fake::AgentMode;
use engine::{AgentError, EngineError};
use tokio::time::Instant;

use crate::harness::{Harness, MINUTE, command, config, pass, settings, settle};

/// Agents with which no create succeeds.
const FAIL_THE_CREATE: [AgentMode; 6] = [
    AgentMode::Silent,
    AgentMode::Garbage { after: 0 },
    AgentMode::Huge { after: 0 },
    AgentMode::HangUp { after: 0 },
    AgentMode::BadVersion,
    AgentMode::Slow(Duration::from_secs(20)),
];

/// Agents that answer the handshake and then fail.
const FAIL_AFTER_THE_HANDSHAKE: [AgentMode; 13] = [
    AgentMode::Silent,
    AgentMode::Deaf,
    AgentMode::Garbage { after: 0 },
    AgentMode::Garbage { after: 1 },
    AgentMode::Garbage { after: 2 },
    AgentMode::Huge { after: 1 },
    AgentMode::HangUp { after: 0 },
    AgentMode::HangUp { after: 1 },
    AgentMode::HangUp { after: 2 },
    AgentMode::OverCredit,
    AgentMode::Wrong,
    AgentMode::BadVersion,
    AgentMode::Slow(Duration::from_secs(20)),
];

#[tokio::test(start_paused = true)]
async fn an_agent_with_a_wrong_handshake_leaves_no_sandbox() {
    for mode in FAIL_THE_CREATE {
        let harness = Harness::new(settings()).await;
        harness.driver.set_agent_mode(mode);
        let begin = Instant::now();
        let error = harness.create_with(config()).await.unwrap_err();
        assert!(matches!(error, EngineError::Agent(AgentError::Failed(_))), "{mode:?}: {error:?}");
        assert!(
            begin.elapsed() < Duration::from_secs(16),
            "{mode:?} held a create for {:?}",
            begin.elapsed()
        );
        assert_eq!(harness.driver.traces(), Default::default(), "{mode:?}");
        harness.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_fails_the_setup_leaves_no_sandbox() {
    for mode in
        [AgentMode::Deaf, AgentMode::Wrong, AgentMode::Garbage { after: 1 }, AgentMode::HangUp { after: 1 }]
    {
        let harness = Harness::new(settings()).await;
        harness.driver.set_agent_mode(mode);
        let elsewhere = api::SandboxConfig { workdir: "/else/where".to_owned(), ..config() };
        let error = harness.create_with(elsewhere).await.unwrap_err();
        assert!(matches!(error, EngineError::Agent(AgentError::Failed(_))), "{mode:?}: {error:?}");
        harness.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn callers_get_an_answer_from_every_hostile_agent() {
    for mode in FAIL_AFTER_THE_HANDSHAKE {
        let harness = Harness::new(settings()).await;
        let id = harness.create().await;
        harness.driver.set_agent_mode_of(&id, mode);
        harness.driver.hang_up(&id);
        settle().await;
        for text in ["echo hello", "head -c 3000000 /dev/zero", "cat"] {
            let begin = Instant::now();
            let stdin = (text == "cat").then(|| "x".repeat(300_000));
            let request = api::ExecuteRequest { stdin, timeout_ms: MINUTE, ..command(text) };
            let answered =
                tokio::time::timeout(Duration::from_secs(300), harness.request(&id, request)).await;
            let answered = answered.unwrap_or_else(|_| panic!("{mode:?}: {text:?} never ended"));
            if let Ok(result) = answered {
                panic!("{mode:?}: {text:?} ended with {result:?}");
            }
            assert!(
                begin.elapsed() < Duration::from_secs(100),
                "{mode:?}: {text:?} took {:?}",
                begin.elapsed()
            );
        }
        // A correct agent after it is connected again.
        harness.driver.set_agent_mode_of(&id, AgentMode::Correct);
        harness.driver.hang_up(&id);
        pass(3000).await;
        assert_eq!(harness.output(&id, "echo back").await, "back\n", "{mode:?}");
        harness.driver.set_agent_mode_of(&id, mode);
        harness.driver.hang_up(&id);
        settle().await;
        harness.engine.sandbox("test", &id).pause().await.unwrap();
        harness.engine.sandbox("test", &id).terminate("request").await.unwrap();
        harness.assert_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn replies_to_unknown_operations_are_ignored() {
    let harness = Harness::new(settings()).await;
    harness.driver.set_agent_mode(AgentMode::Stranger);
    let id = harness.create().await;
    assert_eq!(harness.output(&id, "echo mine").await, "mine\n");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn every_hostile_command_frees_its_slot() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    for mode in [AgentMode::Deaf, AgentMode::OverCredit, AgentMode::Wrong, AgentMode::Silent] {
        harness.driver.set_agent_mode_of(&id, mode);
        harness.driver.hang_up(&id);
        settle().await;
        for _ in 0..4 {
            harness.run(&id, "true").await.unwrap_err();
        }
    }
    harness.driver.set_agent_mode_of(&id, AgentMode::Correct);
    harness.driver.hang_up(&id);
    pass(3000).await;
    let three = [0; 3].map(|_| harness.run(&id, "sleep 1"));
    for result in futures_util::future::join_all(three).await {
        assert_eq!(result.unwrap().exit_code, Some(0));
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_sandbox_whose_processes_end_keeps_its_disk() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    harness.output(&id, "echo kept > file").await;
    harness.driver.crash(&id);
    settle().await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    assert_eq!(harness.used(), (0, 0, 5120));
    assert_eq!(harness.kinds(&id).await.last().unwrap(), "sandbox.error");
    assert_eq!(harness.output(&id, "cat file").await, "kept\n");
    assert_eq!(harness.used(), (2, 2048, 5120));
    let resumed = harness.life(&id).await.pop().unwrap();
    assert!(resumed.data["note"].is_string(), "{resumed:?}");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_request_notices_processes_that_ended_without_a_link() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    // Two link losses in a row: from now on only requests open the link.
    harness.driver.set_agent_mode_of(&id, AgentMode::HangUp { after: 1 });
    harness.driver.hang_up(&id);
    pass(5000).await;
    harness.driver.crash(&id);
    pass(5000).await;
    // The first request may fail; the second one finds the sandbox paused and resumes it.
    let _ = harness.run(&id, "true").await;
    assert_eq!(harness.output(&id, "echo again").await, "again\n");
    assert!(harness.kinds(&id).await.contains(&"sandbox.error".to_owned()));
    harness.assert_clean().await;
}
