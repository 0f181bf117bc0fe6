//! Work among files, with an agent that does as told and with ones that do not.

use std::time::Duration;

use api::SandboxState;
use driver::fake::Manner;
use engine::{EngineError, FileErrorKind, FileOrder, FileRange, Said};
use tokio::time::Instant;

use crate::world::{MINUTE, World, config, pass, settings, settle};

fn read(path: &str) -> FileOrder {
    FileOrder::Read { path: path.into(), range: FileRange::ALL }
}

fn write(path: &str) -> FileOrder {
    FileOrder::Write { path: path.into(), mode: None, parents: false }
}

async fn written(world: &World, id: &api::SandboxId, path: &str, text: &str) -> Result<u64, EngineError> {
    let mut work = world.engine.file("test", id, true, &write(path)).await?;
    if work.feed(text.as_bytes()).await? {
        work.finish().await?;
    }
    Ok(work.info().await?.size)
}

async fn content(world: &World, id: &api::SandboxId, path: &str) -> Result<Vec<u8>, EngineError> {
    let mut work = world.engine.file("test", id, true, &read(path)).await?;
    let Said::Content { length, .. } = work.said().await? else { panic!("no content") };
    let mut all = Vec::new();
    while let Some(bytes) = work.bytes().await? {
        all.extend_from_slice(&bytes);
    }
    assert_eq!(length, Some(all.len() as u64));
    Ok(all)
}

#[tokio::test(start_paused = true)]
async fn a_file_goes_in_and_comes_out_and_wakes_the_sandbox() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    let text = "0123456789".repeat(150_000);
    assert_eq!(written(&world, &id, "/f", &text).await.unwrap(), 1_500_000);
    world.engine.pause("test", &id).await.unwrap();
    assert!(matches!(
        world.engine.file("test", &id, false, &read("/f")).await,
        Err(EngineError::Refused(rules::Refusal::InvalidState { state: SandboxState::Paused, .. }))
    ));
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));
    assert!(content(&world, &id, "/f").await.unwrap() == text.as_bytes());
    assert_eq!(world.state(&id).await, Some(SandboxState::Running));
    // Relative to the working directory.
    written(&world, &id, "here", "x").await.unwrap();
    let absolute = format!("{}/here", config().workdir);
    assert_eq!(content(&world, &id, &absolute).await.unwrap(), b"x");
    match content(&world, &id, "/nowhere").await {
        Err(EngineError::File(fault)) => assert_eq!(fault.kind, FileErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    for path in ["/a\0b".to_owned(), "/x".repeat(3000)] {
        match content(&world, &id, &path).await {
            Err(EngineError::File(fault)) => assert_eq!(fault.kind, FileErrorKind::Invalid),
            other => panic!("{other:?}"),
        }
    }
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn who_goes_away_half_way_writes_nothing() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    written(&world, &id, "/f", "old").await.unwrap();
    let mut work = world.engine.file("test", &id, true, &write("/f")).await.unwrap();
    assert!(work.feed(b"half").await.unwrap());
    drop(work);
    settle().await;
    assert_eq!(content(&world, &id, "/f").await.unwrap(), b"old");
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn work_under_way_keeps_the_sandbox_awake() {
    let world = World::new(settings()).await;
    let idle = api::SandboxConfig { idle_timeout_ms: MINUTE, timeout_ms: 60 * MINUTE, ..config() };
    let id = world.create_with(idle).await.unwrap();
    let work = world.engine.file("test", &id, true, &write("/f")).await.unwrap();
    pass(5 * MINUTE).await;
    assert_eq!(world.state(&id).await, Some(SandboxState::Running));
    drop(work);
    settle().await;
    pass(2 * MINUTE).await;
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn whatever_an_agent_does_the_work_ends() {
    for manner in [
        Manner::Silent,
        Manner::Deaf,
        Manner::Garbage { after: 1 },
        Manner::Garbage { after: 2 },
        Manner::Huge { after: 1 },
        Manner::HangUp { after: 1 },
        Manner::HangUp { after: 2 },
        Manner::OverCredit,
        Manner::Wrong,
        Manner::Stranger,
        Manner::BadVersion,
    ] {
        let world = World::new(settings()).await;
        let id = world.create().await;
        let text = "x".repeat(1_000_000);
        written(&world, &id, "/f", &text).await.unwrap();
        world.driver.set_manner_of(&id, manner);
        world.driver.hang_up(&id);
        settle().await;
        let begin = Instant::now();
        let done = async {
            let _ = written(&world, &id, "/f", &text).await;
            let read = content(&world, &id, "/f").await;
            let list = FileOrder::List { path: b"/".to_vec(), offset: 0, limit: 10 };
            if let Ok(work) = world.engine.file("test", &id, true, &list).await {
                let _ = work.listed(10).await;
            }
            read
        };
        let read = tokio::time::timeout(Duration::from_secs(600), done).await;
        let read = read.unwrap_or_else(|_| panic!("{manner:?} keeps its caller waiting for ever"));
        if let Ok(read) = read {
            assert!(read == text.as_bytes(), "{manner:?} passes for a file that it is not");
        }
        println!("{manner:?}: {:?}", begin.elapsed());
        world.is_clean().await;
    }
}
