//! Tests of the logs of sandboxes, and of metrics of several sandboxes.

use std::time::Instant;

use native::testing::key;
use serde_json::{Value, json};

use super::*;

const LONG: Duration = Duration::from_secs(60);
const UNKNOWN: &str = "sbabcdefgh23";

#[tokio::test]
async fn the_events_of_a_sandbox_are_its_log() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let old = fixture.ask(&format!("GET /sandboxes/{id}/logs"), Value::Null).await;
    let lines: Vec<Value> =
        old.body["logs"].as_array().unwrap().iter().map(|it| it["line"].clone()).collect();
    let parsed: Value = serde_json::from_str(lines[0].as_str().unwrap()).unwrap();
    assert_eq!((&parsed["event"], &parsed["level"]), (&json!("sandbox.created"), &json!("info")));
    assert_eq!(old.body["logEntries"].as_array().unwrap().len(), lines.len());
    let new = fixture.ask(&format!("GET /v2/sandboxes/{id}/logs"), Value::Null).await;
    assert_eq!(new.body["logs"], old.body["logEntries"]);
    let entries = async |query: &str| {
        let got = fixture.ask(&format!("GET /v2/sandboxes/{id}/logs?{query}"), Value::Null).await;
        let events = got.body["logs"].as_array().unwrap().iter().map(|it| it["fields"]["event"].clone());
        events.collect::<Vec<Value>>()
    };
    assert_eq!(entries("limit=1").await, [json!("sandbox.created")]);
    assert_eq!(entries("limit=1&direction=backward").await, [json!("sandbox.started")]);
    assert_eq!(entries("search=started").await, [json!("sandbox.started")]);
    assert!(entries("level=warn").await.is_empty());
    assert!(entries("cursor=99999999999999").await.is_empty());
    assert_eq!(fixture.ask(&format!("GET /v2/sandboxes/{id}/logs?limit=0"), Value::Null).await.status, 400);
    // The log of a sandbox that has ended stays, and is not that of another account.
    assert_eq!(fixture.ask(&format!("DELETE /sandboxes/{id}"), Value::Null).await.status, 204);
    assert!(entries("").await.contains(&json!("sandbox.terminated")));
    let call = format!("GET /sandboxes/{id}/logs");
    assert_eq!(fixture.send("localhost", &call, key(2).as_str(), "").await.status, 404);
    assert_eq!(fixture.ask(&format!("GET /sandboxes/{UNKNOWN}/logs"), Value::Null).await.status, 404);
}

#[tokio::test]
async fn metrics_of_several_sandboxes_are_the_newest_ones() {
    let fixture = Fixture::new().await;
    let ids = [fixture.create(json!({})).await, fixture.create(json!({})).await];
    let call = format!("GET /sandboxes/metrics?sandbox_ids={}%2C{}%2C{UNKNOWN}", ids[0], ids[1]);
    let begin = Instant::now();
    let shown = loop {
        let got = fixture.ask(&call, Value::Null).await;
        assert_eq!(got.status, 200, "{}", got.body);
        let shown = got.body["sandboxes"].as_object().unwrap().clone();
        if shown.len() == 2 {
            break shown;
        }
        assert!(begin.elapsed() < LONG, "{shown:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    for id in &ids {
        assert!(shown[id]["memTotal"].is_u64() && shown[id]["cpuUsedPct"].is_number(), "{shown:?}");
    }
    let theirs = fixture.send("localhost", &call, key(2).as_str(), "").await;
    assert_eq!(theirs.body, json!({ "sandboxes": {} }));
    assert_eq!(fixture.ask("GET /sandboxes/metrics", Value::Null).await.status, 400);
}
