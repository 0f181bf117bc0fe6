//! Events as streams: from an event on, and then as they happen.

use std::time::{Duration, Instant};

use e2e::service::{Client, Event, Events, Service, ServiceOptions};
use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::s11_events::{EVENTS, all, of};
use crate::{at, created, ran, text, user, verb};

/// One that has told its place.
async fn follow(client: &Client, path: &str, from: Option<&str>) -> Events {
    let client = client.apart();
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
async fn a_stream_begins_where_it_is_told_and_goes_on() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let first = text(&all(&client, &of(&id)).await[0]["id"]);
    let mut after_first = follow(&client, &of(&id), Some(&first)).await;
    let mut from_now = follow(&client, &of(&id), None).await;
    let mut by_query = follow(&client, &format!("{}?lastEventId={first}&type=exec.*", of(&id)), None).await;
    let mut of_account = follow(&client, EVENTS, Some("ev_0000000000000000")).await;
    assert_eq!(kinds(&mut after_first, 1).await, ["sandbox.started"]);
    assert_eq!(kinds(&mut of_account, 2).await, ["sandbox.created", "sandbox.started"]);
    ran(&client, &id, json!({ "command": "true" })).await;
    for events in [&mut after_first, &mut from_now, &mut by_query, &mut of_account] {
        assert_eq!(kinds(events, 2).await, ["exec.started", "exec.completed"]);
    }
    let mut executing = client
        .apart()
        .call(Method::POST, &verb(&id, "execute"))
        .json(&json!({ "command": "echo streamed" }))
        .stream()
        .await
        .unwrap();
    while executing.next().await.unwrap().is_some() {}
    assert_eq!(kinds(&mut by_query, 3).await, ["exec.started", "exec.streamed", "exec.completed"]);
    client.delete(&at(&id)).await.unwrap();
    // A stream of a sandbox ends with it, in good order; one of the account does not.
    let rest: Vec<String> = from_now.rest().await.unwrap().into_iter().map(|event| event.name).collect();
    assert_eq!(rest.last().unwrap(), "sandbox.terminated");
    assert_eq!(kinds(&mut of_account, 4).await.last().unwrap(), "sandbox.terminated");
    assert_eq!(by_query.rest().await.unwrap(), []);
    let mut again = follow(&client, &format!("{EVENTS}?sandboxId={id}&type=sandbox.*"), Some(&first)).await;
    assert_eq!(kinds(&mut again, 2).await, ["sandbox.started", "sandbox.terminated"]);
    // From the event after which nothing more came.
    let last = again.last_id.clone().unwrap();
    let other = created(&client).await;
    let mut from_last = follow(&client, &format!("{EVENTS}?type=sandbox.*"), Some(&last)).await;
    assert_eq!(kinds(&mut from_last, 1).await, ["sandbox.created"]);
    client.delete(&at(&other)).await.unwrap();
}

#[tokio::test]
async fn an_event_comes_soon() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let mut events = follow(&client, &of(&id), None).await;
    // The place it begins at.
    for posted in 0..20 {
        let begin = Instant::now();
        client
            .post(&of(&id), &json!({ "type": "cost.llm", "runId": "r", "data": { "n": posted } }))
            .await
            .unwrap();
        assert_eq!(next(&mut events).await.1["data"]["n"], posted);
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
    client.delete(&at(&id)).await.unwrap();
}

#[tokio::test]
async fn what_is_not_allowed_is_an_ordinary_error() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    for (header, query) in [("42", ""), ("ev_1", ""), ("", ""), ("ev_0000000000000000", "?type=x")] {
        let call = client.call(Method::GET, &format!("{}{query}", of(&id)));
        let call = call.header("accept", "text/event-stream").header("last-event-id", header);
        let answer = call.send().await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
    }
    client.delete(&at(&id)).await.unwrap();
    let answer =
        client.call(Method::GET, &of(&id)).header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(answer.status, 404);
}

#[tokio::test]
async fn a_stop_is_said_and_the_next_daemon_goes_on_from_there() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = created(&client).await;
    let mut events = follow(&client, EVENTS, None).await;
    ran(&client, &id, json!({ "command": "true" })).await;
    assert_eq!(kinds(&mut events, 2).await, ["exec.started", "exec.completed"]);
    // Noted in the last moment.
    ran(&client, &id, json!({ "command": "false" })).await;
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
    assert!(service.gone(Duration::from_secs(60)).await.unwrap().success());
    service.boot().await.unwrap();
    let client = client.apart();
    let mut events = follow(&client, EVENTS, last.as_deref()).await;
    client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
    while seen.last().is_none_or(|kind| kind != "sandbox.paused") {
        seen.push(next(&mut events).await.0.name);
    }
    assert_eq!(seen, ["exec.started", "exec.completed", "sandbox.paused"]);
}

#[tokio::test]
async fn a_revoked_key_hears_no_more() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = created(&client).await;
    let owner = client.authorization().to_owned();
    let mut events = follow(&client, EVENTS, None).await;
    let listed = service.program().unwrap().args(["key", "list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let other = service.account().await.unwrap();
    assert_ne!(owner, other.authorization());
    for key in listed.split_whitespace().filter(|word| word.starts_with("key_")) {
        assert!(service.program().unwrap().args(["key", "revoke", key]).status().unwrap().success());
    }
    crate::until("the key is refused", async || client.apart().get(EVENTS).await.unwrap().status == 401)
        .await;
    // Something that its owner would have heard of.
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
