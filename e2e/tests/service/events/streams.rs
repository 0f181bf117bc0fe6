//! Streams of events: replay from an id, then live.

use std::time::{Duration, Instant};

use e2e::service::{Client, Event, Events, Service, ServiceOptions};
use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::events::{EVENTS, all_events, events_path};
use crate::{action_path, create_sandbox, run_command, sandbox_path, text, user};

/// Opens a stream, optionally with `Last-Event-ID`.
async fn follow(client: &Client, path: &str, from: Option<&str>) -> Events {
    let client = client.with_own_connections();
    let mut call = client.call(Method::GET, path);
    if let Some(from) = from {
        call = call.header("last-event-id", from);
    }
    call.stream().await.unwrap()
}

async fn next(events: &mut Events) -> (Event, Value) {
    let event = events.next().await.unwrap().unwrap();
    let json = event.json().unwrap();
    assert_eq!(
        (event.id.as_deref(), event.name.as_str()),
        (json["id"].as_str(), json["type"].as_str().unwrap())
    );
    (event, json)
}

async fn kinds(events: &mut Events, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    for _ in 0..count {
        found.push(next(events).await.0.name);
    }
    found
}

#[tokio::test]
async fn a_stream_starts_at_an_id_and_continues_live() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let first = text(&all_events(&client, &events_path(&id)).await[0]["id"]);
    let mut after_first = follow(&client, &events_path(&id), Some(&first)).await;
    // As a client sends it that has received no event.
    let mut from_now = follow(&client, &events_path(&id), Some("")).await;
    let mut by_query =
        follow(&client, &format!("{}?lastEventId={first}&type=exec.*", events_path(&id)), None).await;
    let mut of_account = follow(&client, EVENTS, Some("ev_0000000000000000")).await;
    assert_eq!(kinds(&mut after_first, 1).await, ["sandbox.started"]);
    assert_eq!(kinds(&mut of_account, 2).await, ["sandbox.created", "sandbox.started"]);
    run_command(&client, &id, json!({ "command": "true" })).await;
    for events in [&mut after_first, &mut from_now, &mut by_query, &mut of_account] {
        assert_eq!(kinds(events, 2).await, ["exec.started", "exec.completed"]);
    }
    let mut executing = client
        .with_own_connections()
        .call(Method::POST, &action_path(&id, "execute"))
        .json(&json!({ "command": "echo streamed" }))
        .stream()
        .await
        .unwrap();
    while executing.next().await.unwrap().is_some() {}
    assert_eq!(kinds(&mut by_query, 3).await, ["exec.started", "exec.streamed", "exec.completed"]);
    client.delete(&sandbox_path(&id)).await.unwrap();
    // A sandbox's stream ends properly with the sandbox; the account's stream continues.
    let rest: Vec<String> = from_now.rest().await.unwrap().into_iter().map(|event| event.name).collect();
    assert_eq!(rest.last().unwrap(), "sandbox.terminated");
    assert_eq!(kinds(&mut of_account, 4).await.last().unwrap(), "sandbox.terminated");
    assert_eq!(by_query.rest().await.unwrap(), []);
    let mut again = follow(&client, &format!("{EVENTS}?sandboxId={id}&type=sandbox.*"), Some(&first)).await;
    assert_eq!(kinds(&mut again, 2).await, ["sandbox.started", "sandbox.terminated"]);
    // From the last event of the account.
    let last = again.last_id.clone().unwrap();
    let other = create_sandbox(&client).await;
    let mut from_last = follow(&client, &format!("{EVENTS}?type=sandbox.*"), Some(&last)).await;
    assert_eq!(kinds(&mut from_last, 1).await, ["sandbox.created"]);
    client.delete(&sandbox_path(&other)).await.unwrap();
}

#[tokio::test]
async fn events_are_delivered_within_two_seconds() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut events = follow(&client, &events_path(&id), None).await;
    for posted in 0..20 {
        let begin = Instant::now();
        client
            .post(&events_path(&id), &json!({ "type": "cost.llm", "runId": "r", "data": { "n": posted } }))
            .await
            .unwrap();
        assert_eq!(next(&mut events).await.1["data"]["n"], posted);
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
    client.delete(&sandbox_path(&id)).await.unwrap();
}

#[tokio::test]
async fn refused_event_streams_are_plain_errors() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for (header, query) in [("42", ""), ("ev_1", ""), ("ev_0000000000000000", "?type=x")] {
        let call = client.call(Method::GET, &format!("{}{query}", events_path(&id)));
        let call = call.header("accept", "text/event-stream").header("last-event-id", header);
        let answer = call.send().await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
    }
    client.delete(&sandbox_path(&id)).await.unwrap();
    let answer = client
        .call(Method::GET, &events_path(&id))
        .header("accept", "text/event-stream")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn a_shutdown_ends_streams_and_the_next_daemon_continues() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let mut events = follow(&client, EVENTS, None).await;
    run_command(&client, &id, json!({ "command": "true" })).await;
    assert_eq!(kinds(&mut events, 2).await, ["exec.started", "exec.completed"]);
    // Recorded shortly before the shutdown.
    run_command(&client, &id, json!({ "command": "false" })).await;
    service.signal(Signal::TERM).unwrap();
    let mut last = events.last_id.clone();
    let mut seen = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        if event.name == "error" {
            assert_eq!(event.json().unwrap()["code"], "RESOURCE_EXHAUSTED");
        } else {
            last.clone_from(&event.id);
            seen.push(event.name);
        }
    }
    assert!(service.wait_for_exit(Duration::from_secs(60)).await.unwrap().success());
    service.start_process().await.unwrap();
    let client = client.with_own_connections();
    let mut events = follow(&client, EVENTS, last.as_deref()).await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    while seen.last().is_none_or(|kind| kind != "sandbox.paused") {
        seen.push(next(&mut events).await.0.name);
    }
    assert_eq!(seen, ["exec.started", "exec.completed", "sandbox.paused"]);
}

#[tokio::test]
async fn a_revoked_key_ends_its_streams() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let owner = client.authorization().to_owned();
    let mut events = follow(&client, EVENTS, None).await;
    let listed = service.program().unwrap().args(["key", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let other = service.account().await.unwrap();
    assert_ne!(owner, other.authorization());
    for key in listed.split_whitespace().filter(|word| word.starts_with("key_")) {
        assert!(service.program().unwrap().args(["key", "revoke", key]).status().unwrap().success());
    }
    crate::wait_until("the key is refused", async || {
        client.with_own_connections().get(EVENTS).await.unwrap().status == 401
    })
    .await;
    let sandbox: api::SandboxId = id.parse().unwrap();
    drop(sandbox);
    let last = loop {
        match events.next().await.unwrap() {
            Some(event) => {
                assert_eq!(event.name, "error");
                assert_eq!(event.json().unwrap()["code"], "UNAUTHORIZED");
            }
            None => break events.last_id,
        }
    };
    assert!(last.is_some());
}
