use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::harness::{Harness, command, config, settings, settle, template};

/// Polls a future up to `times` times, lets all other tasks run in between, and drops it. Returns its output if it completed.
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
async fn a_create_with_a_cancelled_caller_completes_or_leaves_nothing() {
    for times in 1..40 {
        let harness = Harness::new(settings()).await;
        let over = polled(harness.engine.create("test", config(), template(), None), times).await.is_some();
        settle().await;
        // It completes without its caller.
        assert_eq!((harness.engine.living(), harness.driver.traces().len()), (1, 1), "after {times} polls");
        harness.assert_clean().await;
        if over {
            return;
        }
    }
    panic!("the create never ended");
}

#[tokio::test(start_paused = true)]
async fn a_command_with_a_cancelled_caller_frees_its_slot() {
    let harness = Harness::new(engine::EngineSettings { concurrent_executions: 1, ..settings() }).await;
    let id = harness.create().await;
    for times in 1..40 {
        let over = polled(harness.engine.sandbox("test", &id).execute(command("sleep 200")), times).await;
        let was_over = over.is_some();
        drop(over);
        settle().await;
        assert_eq!(harness.run(&id, "true").await.unwrap().exit_code, Some(0), "after {times} polls");
        if was_over {
            harness.assert_clean().await;
            return;
        }
    }
    panic!("the command never started");
}

#[tokio::test(start_paused = true)]
async fn an_ended_command_frees_its_slot_before_its_output_is_read() {
    let harness = Harness::new(engine::EngineSettings { concurrent_executions: 1, ..settings() }).await;
    let id = harness.create().await;
    let unread = harness.engine.sandbox("test", &id).execute(command("true")).await.unwrap();
    settle().await;
    assert_eq!(harness.run(&id, "true").await.unwrap().exit_code, Some(0));
    assert_eq!(unread.collect(1024).await.unwrap().exit_code, Some(0), "the output can still be read");
    harness.assert_clean().await;
}

#[tokio::test(start_paused = true)]
async fn operations_complete_without_their_callers() {
    for times in 1..30 {
        let harness = Harness::new(settings()).await;
        let id = harness.create().await;
        let paused = polled(harness.engine.sandbox("test", &id).pause(), times).await.is_some();
        settle().await;
        let state = harness.state(&id).await.unwrap();
        if times > 1 {
            assert_eq!(state, api::SandboxState::Paused, "after {times} polls");
        }
        polled(harness.engine.sandbox("test", &id).terminate("request"), times).await;
        settle().await;
        harness.assert_clean().await;
        if paused {
            return;
        }
    }
    panic!("the pause never ended");
}
