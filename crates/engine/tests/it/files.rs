//! File operations, with correct and with hostile agents.

use std::time::Duration;

use api::SandboxState;
use driver::fake::AgentMode;
use engine::{EngineError, FileErrorKind, FileOp, FileRange, FileResponse, SandboxError};
use rules::AutoResume;
use tokio::time::Instant;

use crate::harness::{Harness, MINUTE, config, pass, settings, settle};

fn read(path: &str) -> FileOp {
    FileOp::Read { path: path.into(), range: FileRange::ALL }
}

fn write(path: &str) -> FileOp {
    FileOp::Write { path: path.into(), mode: None, parents: false }
}

async fn written(harness: &Harness, id: &api::SandboxId, path: &str, text: &str) -> Result<u64, EngineError> {
    let mut work = harness.engine.sandbox("test", id).file_op(AutoResume::Allowed, &write(path)).await?;
    if work.send_upload([text.to_owned().into()].into()).await? {
        work.finish().await?;
    }
    Ok(work.info().await?.size)
}

async fn content(harness: &Harness, id: &api::SandboxId, path: &str) -> Result<Vec<u8>, EngineError> {
    let mut work = harness.engine.sandbox("test", id).file_op(AutoResume::Allowed, &read(path)).await?;
    let FileResponse::Content { length, .. } = work.next_response().await? else { panic!("no content") };
    let mut all = Vec::new();
    while let Some(bytes) = work.bytes().await? {
        all.extend_from_slice(&bytes);
    }
    assert_eq!(length, Some(all.len() as u64));
    Ok(all)
}

#[tokio::test(start_paused = true)]
async fn a_file_is_written_and_read_and_resumes_the_sandbox() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    let text = "0123456789".repeat(150_000);
    assert_eq!(written(&harness, &id, "/f", &text).await.unwrap(), 1_500_000);
    harness.engine.sandbox("test", &id).pause().await.unwrap();
    assert!(matches!(
        harness.engine.sandbox("test", &id).file_op(AutoResume::Forbidden, &read("/f")).await,
        Err(EngineError::Sandbox(SandboxError::Refused(rules::OperationRefusal::InvalidState {
            state: SandboxState::Paused,
            ..
        })))
    ));
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    assert!(content(&harness, &id, "/f").await.unwrap() == text.as_bytes());
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    // Relative to the working directory.
    written(&harness, &id, "here", "x").await.unwrap();
    let absolute = format!("{}/here", config().workdir);
    assert_eq!(content(&harness, &id, &absolute).await.unwrap(), b"x");
    match content(&harness, &id, "/nowhere").await {
        Err(EngineError::File(fault)) => assert_eq!(fault.kind, FileErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    for path in ["/a\0b".to_owned(), "/x".repeat(3000)] {
        match content(&harness, &id, &path).await {
            Err(EngineError::File(fault)) => assert_eq!(fault.kind, FileErrorKind::Invalid),
            other => panic!("{other:?}"),
        }
    }
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn an_aborted_upload_writes_nothing() {
    let harness = Harness::new(settings()).await;
    let id = harness.create().await;
    written(&harness, &id, "/f", "old").await.unwrap();
    let mut work =
        harness.engine.sandbox("test", &id).file_op(AutoResume::Allowed, &write("/f")).await.unwrap();
    assert!(work.send_upload(["half".into()].into()).await.unwrap());
    drop(work);
    settle().await;
    assert_eq!(content(&harness, &id, "/f").await.unwrap(), b"old");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_running_file_operation_keeps_the_sandbox_active() {
    let harness = Harness::new(settings()).await;
    let idle = api::SandboxConfig { idle_timeout_ms: MINUTE, timeout_ms: 60 * MINUTE, ..config() };
    let id = harness.create_with(idle).await.unwrap();
    let work = harness.engine.sandbox("test", &id).file_op(AutoResume::Allowed, &write("/f")).await.unwrap();
    pass(5 * MINUTE).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Running));
    drop(work);
    settle().await;
    pass(2 * MINUTE).await;
    assert_eq!(harness.state(&id).await, Some(SandboxState::Paused));
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_file_operation_ends_with_every_hostile_agent() {
    for mode in [
        AgentMode::Silent,
        AgentMode::Deaf,
        AgentMode::Garbage { after: 1 },
        AgentMode::Garbage { after: 2 },
        AgentMode::Huge { after: 1 },
        AgentMode::HangUp { after: 1 },
        AgentMode::HangUp { after: 2 },
        AgentMode::OverCredit,
        AgentMode::Wrong,
        AgentMode::Stranger,
        AgentMode::BadVersion,
    ] {
        let harness = Harness::new(settings()).await;
        let id = harness.create().await;
        let text = "x".repeat(1_000_000);
        written(&harness, &id, "/f", &text).await.unwrap();
        harness.driver.set_agent_mode_of(&id, mode);
        harness.driver.hang_up(&id);
        settle().await;
        let begin = Instant::now();
        let done = async {
            let _ = written(&harness, &id, "/f", &text).await;
            let read = content(&harness, &id, "/f").await;
            let list = FileOp::List { path: b"/".to_vec(), offset: 0, limit: 10 };
            if let Ok(work) = harness.engine.sandbox("test", &id).file_op(AutoResume::Allowed, &list).await {
                let _ = work.into_page(10).await;
            }
            read
        };
        let read = tokio::time::timeout(Duration::from_secs(600), done).await;
        let read = read.unwrap_or_else(|_| panic!("{mode:?}: the operation never ended"));
        if let Ok(read) = read {
            assert!(read == text.as_bytes(), "{mode:?}: wrong content was accepted");
        }
        println!("{mode:?}: {:?}", begin.elapsed());
        harness.assert_clean().await;
    }
}
