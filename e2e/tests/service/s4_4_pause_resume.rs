//! Sections 4.4 and 4.5: pause and resume beyond their states, which `s3_states` has.

use serde_json::json;

use crate::{at, created, number, output, state, user, verb};

#[tokio::test]
async fn they_take_no_body_and_do_not_mind_one() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    client.post(&verb(&id, "pause"), &json!({})).await.unwrap().is(200).unwrap();
    let call = client.call(hyper::Method::POST, &verb(&id, "resume")).body("text/plain", b"please".to_vec());
    call.send().await.unwrap().is(200).unwrap();
    assert_eq!(state(&client, &id).await, "running");
}

/// A command that runs when its sandbox is paused stands still and goes on; its time stands still too.
#[tokio::test]
async fn a_command_survives_a_pause() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let command = json!({ "command": "echo begun; touch begun; sleep 1; echo over", "timeoutMs": 20_000 });
    let running = {
        let (client, path) = (client.clone(), verb(&id, "execute"));
        tokio::spawn(async move { client.post(&path, &command).await.unwrap() })
    };
    crate::until("the command has begun", async || output(&client, &id, "ls").await == "begun\n").await;
    client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert!(!running.is_finished());
    client.order(&verb(&id, "resume")).await.unwrap().is(200).unwrap();
    let result = running.await.unwrap().is(200).unwrap();
    assert_eq!((&result["stdout"], &result["exitCode"]), (&json!("begun\nover\n"), &json!(0)));
}

#[tokio::test]
async fn running_time_adds_up_over_all_runs() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let mut last = 0;
    for _ in 0..3 {
        let paused = client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
        let so_far = number(&paused["runtimeDurationMs"]);
        assert!(so_far >= last, "{so_far} after {last}");
        tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        let resumed = client.order(&verb(&id, "resume")).await.unwrap().is(200).unwrap();
        let slept = number(&resumed["pausedDurationMs"]);
        assert!((250..2_500).contains(&slept), "the last pause alone: {slept}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        last = so_far + 100;
    }
    let end = client.delete(&at(&id)).await.unwrap().is(200).unwrap();
    assert!(number(&end["totalRuntimeMs"]) >= last, "{end}");
}
