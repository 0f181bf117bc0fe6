//! Pause and resume. `states` tests the state transitions.

use serde_json::json;

use crate::{action_path, create_sandbox, number, output, sandbox_path, state, user};

#[tokio::test]
async fn pause_and_resume_ignore_a_body() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    client.post(&action_path(&id, "pause"), &json!({})).await.unwrap().is(200).unwrap();
    let call =
        client.call(hyper::Method::POST, &action_path(&id, "resume")).body("text/plain", b"please".to_vec());
    call.send().await.unwrap().is(200).unwrap();
    assert_eq!(state(&client, &id).await, "running");
}

/// A running command is paused and resumed with its sandbox, and so is its timeout.
#[tokio::test]
async fn a_command_survives_a_pause() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let command = json!({ "command": "echo begun; touch begun; sleep 1; echo over", "timeoutMs": 20_000 });
    let running = {
        let (client, path) = (client.clone(), action_path(&id, "execute"));
        tokio::spawn(async move { client.post(&path, &command).await.unwrap() })
    };
    crate::wait_until("the command has begun", async || output(&client, &id, "ls").await == "begun\n").await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!running.is_finished());
    client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    let result = running.await.unwrap().is(200).unwrap();
    assert_eq!((&result["stdout"], &result["exitCode"]), (&json!("begun\nover\n"), &json!(0)));
}

#[tokio::test]
async fn running_time_adds_up_over_all_runs() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut last = 0;
    for _ in 0..3 {
        let paused = client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
        let running_ms = number(&paused["runtimeDurationMs"]);
        assert!(running_ms >= last, "{running_ms} after {last}");
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        let resumed = client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
        let slept = number(&resumed["pausedDurationMs"]);
        assert!((250..2_500).contains(&slept), "expected the duration of the last pause: {slept}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        last = running_ms + 100;
    }
    let end = client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    assert!(number(&end["totalRuntimeMs"]) >= last, "{end}");
}
