//! Section 3, what happens by itself: the lifetime and the idle time (decisions 3 and 4).

use std::time::{Duration, Instant};

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::json;

use crate::{
    SANDBOXES, at, number, occupied, output, ran, small, state, text, time, until, user, verb, with,
};

/// A sandbox with these times, of which 0 is left as it is.
async fn timed(client: &Client, timeout_ms: u64, idle_timeout_ms: u64) -> String {
    let mut body = small();
    for (field, ms) in [("timeoutMs", timeout_ms), ("idleTimeoutMs", idle_timeout_ms)] {
        if ms > 0 {
            body = with(body, field, json!(ms));
        }
    }
    text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"])
}

#[tokio::test]
async fn a_lifetime_that_is_over_terminates() {
    let (_service, client) = user().await;
    let id = timed(&client, 700, 0).await;
    let started = time(&client.get(&at(&id)).await.unwrap().is(200).unwrap()["startedAt"]);
    // A command that is running is killed with it.
    let command = json!({ "command": "echo begun; sleep 30" });
    let events = client.call(Method::POST, &verb(&id, "execute")).json(&command).stream().await.unwrap();
    let events = events.rest().await.unwrap();
    assert_eq!((events[0].name.as_str(), events[0].data.as_str()), ("stdout", "begun"));
    assert_ne!(events.last().unwrap().data, "begun", "the stream ended without a word");
    let error = client.get(&at(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(
        (&error["details"]["state"], &error["details"]["reason"]),
        (&json!("terminated"), &json!("timeout"))
    );
    let lived = time(&error["details"]["terminatedAt"]) - started;
    assert!((650..5_000).contains(&lived), "{lived} ms");
}

#[tokio::test]
async fn the_lifetime_stands_still_during_a_pause() {
    let (_service, client) = user().await;
    let id = timed(&client, 1_500, 0).await;
    client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
    tokio::time::sleep(Duration::from_millis(1_800)).await;
    assert_eq!(state(&client, &id).await, "paused");
    let resumed = client.order(&verb(&id, "resume")).await.unwrap().is(200).unwrap();
    assert!(number(&resumed["pausedDurationMs"]) >= 1_800);
    // The original time stays in effect: what was left of it, it still has.
    assert_eq!(state(&client, &id).await, "running");
    until("the lifetime is over", async || client.get(&at(&id)).await.unwrap().status == 404).await;
    let error = client.get(&at(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"]["reason"], "timeout");
    let lived = time(&error["details"]["terminatedAt"]) - time(&resumed["resumedAt"]);
    assert!((500..=1_700).contains(&lived), "{lived} ms after it was resumed");
}

#[tokio::test]
async fn an_idle_sandbox_is_paused_and_wakes_for_a_command() {
    let (_service, client) = user().await;
    let id = timed(&client, 0, 600).await;
    let started = time(&client.get(&at(&id)).await.unwrap().is(200).unwrap()["startedAt"]);
    until("it is paused", async || state(&client, &id).await == "paused").await;
    let sandbox = client.get(&at(&id)).await.unwrap().is(200).unwrap();
    let awake = time(&sandbox["pausedAt"]) - started;
    assert!((550..5_000).contains(&awake), "{awake} ms");
    let result = ran(&client, &id, json!({ "command": "echo awake" })).await;
    assert_eq!(result["stdout"], "awake\n");
    // The same idle time is in effect again.
    until("it is paused again", async || state(&client, &id).await == "paused").await;
}

/// GETs do not keep a sandbox awake; a command does, a stream does, a refused request does (decision 4).
#[tokio::test]
async fn what_keeps_a_sandbox_awake() {
    let (_service, client) = user().await;
    let id = timed(&client, 0, 800).await;
    let result = ran(&client, &id, json!({ "command": "sleep 1.6; echo still awake" })).await;
    assert_eq!(result["stdout"], "still awake\n");
    assert_eq!(state(&client, &id).await, "running");
    // A request that names it and changes nothing.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        client.order(&verb(&id, "resume")).await.unwrap().error(409, "INVALID_STATE").unwrap();
    }
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        client.post(&verb(&id, "execute"), &json!({ "command": 5 })).await.unwrap().is(400).unwrap();
    }
    assert_eq!(state(&client, &id).await, "running");
    until("GETs let it sleep", async || state(&client, &id).await == "paused").await;
}

#[tokio::test]
async fn a_background_process_does_not_keep_it_awake_and_zero_does() {
    let (_service, client) = user().await;
    let sleepy = timed(&client, 0, 500).await;
    let wakeful = timed(&client, 0, 0).await;
    ran(&client, &sleepy, json!({ "command": "sleep 600 > /dev/null 2>&1 &" })).await;
    until("it is paused", async || state(&client, &sleepy).await == "paused").await;
    assert_eq!(state(&client, &wakeful).await, "running");
}

/// The time a command may take counts from the request on: where it is used up before the command could start, that is 408, and
/// nothing has run. Here it waits in a queue; waking a sandbox is too quick to be waited for.
#[tokio::test]
async fn a_command_whose_time_is_used_up_before_it_starts() {
    let options = ServiceOptions::default().with("limits", "concurrent_executions", "1").with(
        "limits",
        "execution_queue",
        "1",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = timed(&client, 0, 0).await;
    let running = occupied(&client, &id, 1).await;
    let body = json!({ "command": "touch /begun", "timeoutMs": 300 });
    let call = client.call(Method::POST, &verb(&id, "execute")).json(&body);
    let begin = Instant::now();
    call.send().await.unwrap().error(408, "EXECUTION_TIMEOUT").unwrap();
    assert!((300..5_000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    let call = client.call(Method::POST, &verb(&id, "execute")).header("accept", "text/event-stream");
    call.json(&body).send().await.unwrap().error(408, "EXECUTION_TIMEOUT").unwrap();
    drop(running);
    assert_eq!(output(&client, &id, "ls /begun 2>/dev/null; echo no").await, "no\n");
    // The least time there is, while its sandbox is woken: either it was enough or it was not. A waking that was begun goes on.
    for _ in 0..10 {
        let paused = client.order(&verb(&id, "pause")).await.unwrap();
        assert!([200, 409].contains(&paused.status), "{}", paused.text());
        let body = json!({ "command": "true", "timeoutMs": 1 });
        let answer = client.post(&verb(&id, "execute"), &body).await.unwrap();
        assert!([200, 408].contains(&answer.status), "{}", answer.text());
    }
}

/// However a command and the end of its sandbox meet, it is no fault of the service: the command is killed, or there is no
/// sandbox any more.
#[tokio::test]
async fn commands_that_meet_the_end_of_the_lifetime() {
    let (_service, client) = user().await;
    for lifetime_ms in 30..50 {
        let id = timed(&client, lifetime_ms * 3, 0).await;
        loop {
            let answer = client.post(&verb(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
            match answer.status {
                404 => break drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
                _ => drop(answer.is(200).unwrap_or_else(|e| panic!("{lifetime_ms}: {e:#}"))),
            }
        }
    }
}
