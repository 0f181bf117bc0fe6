use std::time::Duration;

use api::SandboxState;
use driver::fake::Manner;
use engine::EngineError;
use tokio::time::Instant;

use crate::world::{MINUTE, World, command, config, pass, settings, settle};

/// Agents that never get a sandbox made.
const AT_ONCE: [Manner; 6] = [
    Manner::Silent,
    Manner::Garbage { after: 0 },
    Manner::Huge { after: 0 },
    Manner::HangUp { after: 0 },
    Manner::BadVersion,
    Manner::Slow(Duration::from_secs(20)),
];

/// Agents that welcome and then go wrong.
const LATER: [Manner; 13] = [
    Manner::Silent,
    Manner::Deaf,
    Manner::Garbage { after: 0 },
    Manner::Garbage { after: 1 },
    Manner::Garbage { after: 2 },
    Manner::Huge { after: 1 },
    Manner::HangUp { after: 0 },
    Manner::HangUp { after: 1 },
    Manner::HangUp { after: 2 },
    Manner::OverCredit,
    Manner::Wrong,
    Manner::BadVersion,
    Manner::Slow(Duration::from_secs(20)),
];

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_greet_properly_leaves_no_sandbox() {
    for manner in AT_ONCE {
        let world = World::new(settings()).await;
        world.driver.set_manner(manner);
        let begin = Instant::now();
        let error = world.create_with(config()).await.unwrap_err();
        assert!(matches!(error, EngineError::Agent(_)), "{manner:?}: {error:?}");
        assert!(
            begin.elapsed() < Duration::from_secs(16),
            "{manner:?} held a create for {:?}",
            begin.elapsed()
        );
        assert_eq!(world.driver.traces(), Default::default(), "{manner:?}");
        world.is_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_do_as_told_leaves_no_sandbox() {
    for manner in [Manner::Deaf, Manner::Wrong, Manner::Garbage { after: 1 }, Manner::HangUp { after: 1 }] {
        let world = World::new(settings()).await;
        world.driver.set_manner(manner);
        let elsewhere = api::SandboxConfig { workdir: "/else/where".to_owned(), ..config() };
        let error = world.create_with(elsewhere).await.unwrap_err();
        assert!(matches!(error, EngineError::Agent(_)), "{manner:?}: {error:?}");
        world.is_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_an_agent_does_callers_get_an_answer_and_the_sandbox_can_be_ended() {
    for manner in LATER {
        let world = World::new(settings()).await;
        let id = world.create().await;
        world.driver.set_manner_of(&id, manner);
        world.driver.hang_up(&id);
        settle().await;
        for text in ["echo hello", "head -c 3000000 /dev/zero", "cat"] {
            let begin = Instant::now();
            let stdin = (text == "cat").then(|| "x".repeat(300_000));
            let request = api::ExecuteRequest { stdin, timeout_ms: MINUTE, ..command(text) };
            let answered = tokio::time::timeout(Duration::from_secs(300), world.request(&id, request)).await;
            let answered = answered.unwrap_or_else(|_| panic!("{manner:?} keeps {text:?} waiting for ever"));
            if let Ok(result) = answered {
                panic!("{manner:?}: {text:?} ended with {result:?}");
            }
            assert!(
                begin.elapsed() < Duration::from_secs(100),
                "{manner:?}: {text:?} took {:?}",
                begin.elapsed()
            );
        }
        // An honest one after it is reached again.
        world.driver.set_manner_of(&id, Manner::Honest);
        world.driver.hang_up(&id);
        pass(3000).await;
        assert_eq!(world.output(&id, "echo back").await, "back\n", "{manner:?}");
        world.driver.set_manner_of(&id, manner);
        world.driver.hang_up(&id);
        settle().await;
        world.engine.pause("test", &id).await.unwrap();
        world.engine.terminate("test", &id, "request").await.unwrap();
        world.is_clean().await;
    }
}

#[tokio::test(start_paused = true)]
async fn answers_for_others_mean_nothing() {
    let world = World::new(settings()).await;
    world.driver.set_manner(Manner::Stranger);
    let id = world.create().await;
    assert_eq!(world.output(&id, "echo mine").await, "mine\n");
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn a_place_comes_back_from_every_hostile_command() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    for manner in [Manner::Deaf, Manner::OverCredit, Manner::Wrong, Manner::Silent] {
        world.driver.set_manner_of(&id, manner);
        world.driver.hang_up(&id);
        settle().await;
        for _ in 0..4 {
            world.run(&id, "true").await.unwrap_err();
        }
    }
    world.driver.set_manner_of(&id, Manner::Honest);
    world.driver.hang_up(&id);
    pass(3000).await;
    let three = [0; 3].map(|_| world.run(&id, "sleep 1"));
    for result in futures_util::future::join_all(three).await {
        assert_eq!(result.unwrap().exit_code, Some(0));
    }
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn processes_that_end_leave_a_sandbox_on_its_disk() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    world.output(&id, "echo kept > file").await;
    world.driver.crash(&id);
    settle().await;
    assert_eq!(world.state(&id).await, Some(SandboxState::Paused));
    assert_eq!(world.used(), (0, 0, 5120));
    assert_eq!(world.kinds(&id).await.last().unwrap(), "sandbox.error");
    assert_eq!(world.output(&id, "cat file").await, "kept\n");
    assert_eq!(world.used(), (2, 2048, 5120));
    let resumed = world.life(&id).await.pop().unwrap();
    assert!(resumed.data["note"].is_string(), "{resumed:?}");
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn processes_that_end_when_nobody_is_linked_are_missed_at_the_next_request() {
    let world = World::new(settings()).await;
    let id = world.create().await;
    // Hung up twice at once: from then on it is called back by requests only.
    world.driver.set_manner_of(&id, Manner::HangUp { after: 1 });
    world.driver.hang_up(&id);
    pass(5000).await;
    world.driver.crash(&id);
    pass(5000).await;
    // The first may hear of it; the second finds it paused and wakes it.
    let _ = world.run(&id, "true").await;
    assert_eq!(world.output(&id, "echo again").await, "again\n");
    assert!(world.kinds(&id).await.contains(&"sandbox.error".to_owned()));
    world.is_clean().await;
}
