use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::world::{World, command, config, settings, settle, template};

/// Polls a future so many times, with everything else coming to rest in between, and drops it. Whether it was over before.
async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(value) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(value);
        }
        tokio::task::yield_now().await;
    }
    None
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_caller_goes_away_is_a_whole_sandbox_or_none() {
    for times in 1..40 {
        let world = World::new(settings()).await;
        let over = polled(world.engine.create("test", config(), template(), None), times).await.is_some();
        settle().await;
        // It goes on without its caller.
        assert_eq!((world.engine.living(), world.driver.traces().len()), (1, 1), "after {times} polls");
        world.is_clean().await;
        if over {
            return;
        }
    }
    panic!("the create never ended");
}

#[tokio::test(start_paused = true)]
async fn a_command_whose_caller_goes_away_gives_its_place_back() {
    let world = World::new(engine::EngineSettings { concurrent_executions: 1, ..settings() }).await;
    let id = world.create().await;
    for times in 1..40 {
        let over = polled(world.engine.execute("test", &id, command("sleep 200")), times).await;
        let was_over = over.is_some();
        drop(over);
        settle().await;
        assert_eq!(world.run(&id, "true").await.unwrap().exit_code, Some(0), "after {times} polls");
        if was_over {
            world.is_clean().await;
            return;
        }
    }
    panic!("the command never started");
}

#[tokio::test(start_paused = true)]
async fn a_command_that_has_ended_needs_no_place_read_or_not() {
    let world = World::new(engine::EngineSettings { concurrent_executions: 1, ..settings() }).await;
    let id = world.create().await;
    let unread = world.engine.execute("test", &id, command("true")).await.unwrap();
    settle().await;
    assert_eq!(world.run(&id, "true").await.unwrap().exit_code, Some(0));
    assert_eq!(unread.collect(1024).await.unwrap().exit_code, Some(0), "it is there to be read all the same");
    world.is_clean().await;
}

#[tokio::test(start_paused = true)]
async fn verbs_go_on_without_their_callers() {
    for times in 1..30 {
        let world = World::new(settings()).await;
        let id = world.create().await;
        let paused = polled(world.engine.pause("test", &id), times).await.is_some();
        settle().await;
        let state = world.state(&id).await.unwrap();
        if times > 1 {
            assert_eq!(state, api::SandboxState::Paused, "after {times} polls");
        }
        polled(world.engine.terminate("test", &id, "request"), times).await;
        settle().await;
        world.is_clean().await;
        if paused {
            return;
        }
    }
    panic!("the pause never ended");
}
