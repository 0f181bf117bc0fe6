//! Lists of events, and events that clients post.

use std::collections::BTreeSet;
use std::time::Duration;

use e2e::service::{Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::events::{EVENTS, all_events, events_path};
use crate::{
    UNKNOWN_ID, action_path, create_sandbox, keys, number, run_command, sandbox_path, text, time, user,
    wait_until,
};

fn kinds(events: &[Value]) -> Vec<String> {
    events.iter().map(|event| text(&event["type"])).collect()
}

/// Waits for a number of events; events of commands, files and ports become visible slightly after the response.
async fn wait_for_events(client: &Client, id: &str, count: usize) -> Vec<Value> {
    wait_until("the events are visible", async || all_events(client, &events_path(id)).await.len() >= count)
        .await;
    all_events(client, &events_path(id)).await
}

#[tokio::test]
async fn the_lifecycle_of_a_sandbox_is_recorded() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    run_command(&client, &id, json!({ "command": "echo hello; exit 3", "env": { "TOKEN": "s3cret" } })).await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let body = json!({ "command": "true" });
    let call =
        client.call(Method::POST, &action_path(&id, "execute")).header("x-run-id", "run-1").json(&body);
    call.send().await.unwrap().is(200).unwrap();
    let events = wait_for_events(&client, &id, 8).await;
    let expected = [
        "sandbox.created",
        "sandbox.started",
        "exec.started",
        "exec.completed",
        "sandbox.paused",
        "sandbox.resumed",
        "exec.started",
        "exec.completed",
    ];
    assert_eq!(kinds(&events), expected);
    for event in &events {
        assert_eq!(keys(event), ["data", "id", "runId", "sandboxId", "timestamp", "type"]);
        assert_eq!(text(&event["sandboxId"]), id);
        time(&event["timestamp"]);
        assert!(!event.to_string().contains("s3cret"), "{event}");
    }
    let ids: Vec<String> = events.iter().map(|event| text(&event["id"])).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "{ids:?}");
    assert_eq!(events[0]["data"]["image"], Service::image());
    let completed = &events[3]["data"];
    assert_eq!((&completed["command"], &completed["exitCode"]), (&json!("echo hello; exit 3"), &json!(3)));
    assert_eq!((&completed["stdoutBytes"], &completed["signal"]), (&json!(6), &Value::Null));
    assert!(completed["durationMs"].is_u64() && completed["executionId"] == events[2]["data"]["executionId"]);
    assert_eq!((&events[3]["runId"], &events[7]["runId"]), (&json!(""), &json!("run-1")));
    assert_eq!(events[4]["data"]["reason"], "request");

    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    client.get(&events_path(&id)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    let kept = all_events(&client, &format!("{EVENTS}?sandboxId={id}")).await;
    assert_eq!((kept.len(), kinds(&kept)[8].as_str()), (9, "sandbox.terminated"));
    assert_eq!(kept[8]["data"]["reason"], "deleted");
    // The account has no other sandbox.
    assert_eq!(all_events(&client, EVENTS).await, kept);
}

#[tokio::test]
async fn events_are_filtered_and_paged() {
    let (service, client) = user().await;
    let (one, two) = (create_sandbox(&client).await, create_sandbox(&client).await);
    for (id, run) in [(&one, "run-a"), (&two, "run-a"), (&two, "run-b")] {
        let body = json!([
            { "type": "agent.thinking", "runId": run, "data": { "text": "hm" }, "timestamp": "2026-01-02T03:04:05Z" },
            { "type": "cost.llm", "runId": run, "data": { "amount": 0.25 } },
        ]);
        let answer = client.post(&events_path(id), &body).await.unwrap().is(201).unwrap();
        assert_eq!(answer, json!({ "recorded": 2 }));
    }
    let count = async |query: &str| all_events(&client, &format!("{EVENTS}?{query}")).await.len();
    for (query, expected) in [
        ("type=agent.thinking".to_owned(), 3),
        ("type=agent.*&type=cost.*".to_owned(), 6),
        ("type=exec.*".to_owned(), 0),
        ("runId=run-a".to_owned(), 4),
        ("runId=run-a&type=cost.llm".to_owned(), 2),
        (format!("runId=run-a&sandboxId={two}"), 2),
        (format!("sandboxId={two}"), 6),
        (format!("sandboxId={UNKNOWN_ID}"), 0),
        ("until=2026-01-02T03:04:05.001Z".to_owned(), 3),
        ("since=2026-01-02T03:04:05Z&until=2026-01-02T03:04:05.001Z&runId=run-b".to_owned(), 1),
        ("since=2026-01-02T03:04:05.001Z&type=agent.*".to_owned(), 0),
        ("unknown=1&type=cost.llm".to_owned(), 3),
    ] {
        assert_eq!(count(&query).await, expected, "{query}");
    }
    let newest = client.get(&format!("{EVENTS}?order=desc&limit=3&offset=1")).await.unwrap().is(200).unwrap();
    let mut oldest = all_events(&client, EVENTS).await;
    oldest.reverse();
    assert_eq!(newest["data"].as_array().unwrap()[..], oldest[1..4]);
    assert_eq!(newest["pagination"], json!({ "total": 10, "limit": 3, "offset": 1, "hasMore": true }));
    for query in [
        "type=nothing",
        "limit=0",
        "after=7",
        "since=now",
        "runId=",
        "order=up",
        "type=exec.*&limit=1&limit=2",
    ] {
        let answer = client.get(&format!("{EVENTS}?{query}")).await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
    }
    // Events of other accounts are not visible.
    let other = service.account().await.unwrap();
    assert_eq!(all_events(&other, &format!("{EVENTS}?sandboxId={one}")).await, Vec::<Value>::new());
    assert_eq!(all_events(&other, &format!("{EVENTS}?runId=run-a")).await, Vec::<Value>::new());
    assert_eq!(other.get(&events_path(&one)).await.unwrap().status, 404);
    assert_eq!(
        other.post(&events_path(&one), &json!({ "type": "cost.llm", "runId": "r" })).await.unwrap().status,
        404
    );
    for id in [one, two] {
        client.delete(&sandbox_path(&id)).await.unwrap();
    }
}

#[tokio::test]
async fn posted_events_are_recorded_once_or_refused() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let body = json!([{ "type": "agent.tool_call", "runId": "run-1", "data": { "tool": "search" } }]);
    for replayed in [None, Some("true")] {
        let call = client.call(Method::POST, &events_path(&id)).header("idempotency-key", "once").json(&body);
        let answer = call.send().await.unwrap();
        assert_eq!((answer.status, answer.header("idempotency-replayed")), (201, replayed));
    }
    assert_eq!(all_events(&client, &format!("{}?type=agent.*", events_path(&id))).await.len(), 1);
    let other = json!({ "type": "agent.error", "runId": "run-1" });
    let call = client.call(Method::POST, &events_path(&id)).header("idempotency-key", "once").json(&other);
    assert_eq!(call.send().await.unwrap().status, 400);
    for (bad, code) in [
        (json!([]), "INVALID_CONFIG"),
        (json!([body[0], { "type": "exec.completed", "runId": "r" }]), "INVALID_CONFIG"),
        (json!({ "type": "agent.error" }), "INVALID_REQUEST"),
        (
            json!({ "type": "agent.error", "runId": "r", "data": { "a": "x".repeat(17_000) } }),
            "INVALID_CONFIG",
        ),
    ] {
        let answer = client.post(&events_path(&id), &bad).await.unwrap();
        answer.error(400, code).unwrap();
    }
    let large = json!({ "type": "agent.error", "runId": "r", "more": "x".repeat(300_000) });
    // The service closes the connection if it does not read the body.
    assert_eq!(client.with_own_connections().post(&events_path(&id), &large).await.unwrap().status, 413);
    assert_eq!(all_events(&client, &format!("{}?type=agent.*", events_path(&id))).await.len(), 1);
    let reader = service.client_with_new_key("reader", "read").await.unwrap();
    assert_eq!(reader.post(&events_path(&id), &body).await.unwrap().status, 403);
    let bad_run = client.call(Method::POST, &action_path(&id, "execute")).header("x-run-id", "a b");
    let answer = bad_run.json(&json!({ "command": "true" })).send().await.unwrap();
    answer.error(400, "INVALID_REQUEST").unwrap();
    client.delete(&sandbox_path(&id)).await.unwrap();
}

#[tokio::test]
async fn running_time_is_priced_by_the_configuration() {
    let options = ServiceOptions::default()
        .with("prices", "cpu_hour", "36.0")
        .with("prices", "memory_gb_hour", "0.0")
        .with("prices", "currency", "\"CHF\"");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    // A period of less than a millisecond has no event.
    let measurable = Duration::from_millis(5);
    tokio::time::sleep(measurable).await;
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    tokio::time::sleep(measurable).await;
    let ended = client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let costs = all_events(&client, &format!("{EVENTS}?type=cost.runtime")).await;
    assert_eq!(costs.len(), 2);
    let sum = |name: &str| costs.iter().map(|event| number(&event["data"][name])).sum::<u64>();
    let total = number(&ended["totalRuntimeMs"]);
    // Two processors at 36 per hour cost 0.02 per second.
    assert_eq!((sum("runningMs"), sum("amountNanos")), (total, total * 20_000));
    assert_eq!(costs[0]["data"]["currency"], "CHF");
}

#[tokio::test]
async fn event_kinds_in_the_openapi_document_are_complete() {
    let (_service, client) = user().await;
    let document = client.get("/v1/openapi.json").await.unwrap().is(200).unwrap();
    let listed = document["components"]["schemas"]["EventKind"]["enum"].as_array().unwrap();
    let listed: BTreeSet<String> = listed.iter().map(text).collect();
    let known: BTreeSet<String> = api::EventKind::ALL.iter().map(ToString::to_string).collect();
    assert_eq!(listed, known);
}
