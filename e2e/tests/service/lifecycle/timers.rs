//! The timeouts of a sandbox: lifetime and idle pause.

use std::time::{Duration, Instant};

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::json;

use crate::{
    SANDBOXES, action_path, number, output, run_command, sandbox_path, small, start_sleepers, state, text,
    time, user, wait_until, with,
};

/// Creates a sandbox with these timeouts; 0 leaves the default of the tests.
async fn create_with_timeouts(client: &Client, timeout_ms: u64, idle_timeout_ms: u64) -> String {
    let mut body = small();
    for (field, ms) in [("timeoutMs", timeout_ms), ("idleTimeoutMs", idle_timeout_ms)] {
        if ms > 0 {
            body = with(body, field, json!(ms));
        }
    }
    text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"])
}

#[tokio::test]
async fn the_end_of_the_lifetime_terminates() {
    let (service, client) = user().await;
    let id = create_with_timeouts(&client, 3_000, 0).await;
    let started = time(&client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap()["startedAt"]);
    // A running command is killed too.
    let command = json!({ "command": "echo begun; sleep 30" });
    let events =
        client.call(Method::POST, &action_path(&id, "execute")).json(&command).stream().await.unwrap();
    let events = events.rest().await.unwrap();
    assert_eq!((events[0].name.as_str(), events[0].data.as_str()), ("stdout", "begun"));
    assert_ne!(events.last().unwrap().data, "begun", "the stream ended without a final event");
    let error = client.get(&sandbox_path(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(
        (&error["details"]["state"], &error["details"]["reason"]),
        (&json!("terminated"), &json!("timeout"))
    );
    let lived = time(&error["details"]["terminatedAt"]) - started;
    assert!((2_950..10_000).contains(&lived), "{lived} ms");
    assert_logged(&service, &id, "terminated a sandbox without a request").await;
}

/// The operator can find out what became of a sandbox, and whose it was.
async fn assert_logged(service: &Service, id: &str, what: &str) {
    wait_until("the log has it", async || {
        let log = service.log();
        log.lines().any(|line| line.contains(what) && line.contains(id) && line.contains("account"))
    })
    .await;
}

#[tokio::test]
async fn the_lifetime_does_not_count_while_paused() {
    let (_service, client) = user().await;
    let id = create_with_timeouts(&client, 4_000, 0).await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    tokio::time::sleep(Duration::from_millis(4_500)).await;
    assert_eq!(state(&client, &id).await, "paused");
    let resumed = client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    assert!(number(&resumed["pausedDurationMs"]) >= 4_500);
    // The remaining lifetime continues after the pause.
    assert_eq!(state(&client, &id).await, "running");
    wait_until("the lifetime is over", async || client.get(&sandbox_path(&id)).await.unwrap().status == 404)
        .await;
    let error = client.get(&sandbox_path(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"]["reason"], "timeout");
    let lived = time(&error["details"]["terminatedAt"]) - time(&resumed["resumedAt"]);
    assert!((500..=4_200).contains(&lived), "{lived} ms after the resume");
}

#[tokio::test]
async fn an_idle_sandbox_is_paused_and_resumed_by_a_command() {
    let (service, client) = user().await;
    let id = create_with_timeouts(&client, 0, 600).await;
    let started = time(&client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap()["startedAt"]);
    wait_until("it is paused", async || state(&client, &id).await == "paused").await;
    let sandbox = client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let awake = time(&sandbox["pausedAt"]) - started;
    assert!((550..5_000).contains(&awake), "{awake} ms");
    assert_logged(&service, &id, "paused a sandbox without a request").await;
    let result = run_command(&client, &id, json!({ "command": "echo awake" })).await;
    assert_eq!(result["stdout"], "awake\n");
    // The idle timeout applies again.
    wait_until("it is paused again", async || state(&client, &id).await == "paused").await;
}

/// GETs are not activity; commands, streams and refused requests are.
#[tokio::test]
async fn commands_and_refused_requests_count_as_activity() {
    let (_service, client) = user().await;
    let id = create_with_timeouts(&client, 0, 800).await;
    let result = run_command(&client, &id, json!({ "command": "sleep 1.6; echo still awake" })).await;
    assert_eq!(result["stdout"], "still awake\n");
    assert_eq!(state(&client, &id).await, "running");
    // A refused request for the sandbox.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        client.post_empty(&action_path(&id, "resume")).await.unwrap().error(409, "INVALID_STATE").unwrap();
    }
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        client.post(&action_path(&id, "execute"), &json!({ "command": 5 })).await.unwrap().is(400).unwrap();
    }
    assert_eq!(state(&client, &id).await, "running");
    wait_until("GETs let it sleep", async || state(&client, &id).await == "paused").await;
}

#[tokio::test]
async fn a_background_process_is_not_activity_and_zero_disables_the_idle_pause() {
    let (_service, client) = user().await;
    let sleepy = create_with_timeouts(&client, 0, 500).await;
    let wakeful = create_with_timeouts(&client, 0, 0).await;
    run_command(&client, &sleepy, json!({ "command": "sleep 600 > /dev/null 2>&1 &" })).await;
    wait_until("it is paused", async || state(&client, &sleepy).await == "paused").await;
    assert_eq!(state(&client, &wakeful).await, "running");
}

/// The time a command may take counts from the request on: where it is used up before the command could start, that is 408, and
/// nothing has run. Here it waits in a queue; waking a sandbox is too quick to be waited for.
#[tokio::test]
async fn a_command_that_times_out_before_its_start_is_refused() {
    let options = ServiceOptions::default().with("limits", "concurrent_executions", "1").with(
        "limits",
        "execution_queue",
        "1",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_with_timeouts(&client, 0, 0).await;
    let running = start_sleepers(&client, &id, 1).await;
    let body = json!({ "command": "touch /begun", "timeoutMs": 300 });
    let call = client.call(Method::POST, &action_path(&id, "execute")).json(&body);
    let begin = Instant::now();
    call.send().await.unwrap().error(408, "EXECUTION_TIMEOUT").unwrap();
    assert!((300..5_000).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    let call = client.call(Method::POST, &action_path(&id, "execute")).header("accept", "text/event-stream");
    call.json(&body).send().await.unwrap().error(408, "EXECUTION_TIMEOUT").unwrap();
    drop(running);
    assert_eq!(output(&client, &id, "ls /begun 2>/dev/null; echo no").await, "no\n");
    // The least time there is, while its sandbox is woken: either it was enough or it was not. A waking that was begun goes on.
    for _ in 0..10 {
        let paused = client.post_empty(&action_path(&id, "pause")).await.unwrap();
        assert!([200, 409].contains(&paused.status), "{}", paused.text());
        let body = json!({ "command": "true", "timeoutMs": 1 });
        let answer = client.post(&action_path(&id, "execute"), &body).await.unwrap();
        assert!([200, 408].contains(&answer.status), "{}", answer.text());
    }
}

/// A command at the end of the lifetime is killed, or refused because the sandbox is terminated; the service does not fail.
#[tokio::test]
async fn commands_at_the_end_of_the_lifetime_do_not_fail_the_service() {
    let (_service, client) = user().await;
    for lifetime_ms in 30..50 {
        let id = create_with_timeouts(&client, lifetime_ms * 3, 0).await;
        loop {
            let answer =
                client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
            match answer.status {
                404 => break drop(answer.error(404, "SANDBOX_NOT_FOUND").unwrap()),
                _ => drop(answer.is(200).unwrap_or_else(|e| panic!("{lifetime_ms}: {e:#}"))),
            }
        }
    }
}
