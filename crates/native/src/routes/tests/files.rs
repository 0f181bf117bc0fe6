//! File operations, with well-behaved and with faulty agents.

use axum::body::Body;
use axum::http::StatusCode;
use bytes::Bytes;
use driver::fake::AgentMode;
use futures_util::stream;
use http_body_util::BodyExt;
use serde_json::json;

use super::fixture::{Fixture, request};

fn path(id: &str, rest: &str) -> String {
    format!("/v1/sandboxes/{id}/files{rest}")
}

async fn put(fixture: &Fixture, path: &str, body: impl Into<Body>) -> super::fixture::Answer {
    fixture.ask(request("PUT", path).body(body.into()).unwrap()).await
}

#[tokio::test]
async fn content_goes_in_and_comes_out_with_its_headers() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let text = "0123456789".repeat(100_000);
    let entry = put(&fixture, &path(&id, "?path=f"), text.clone()).await;
    assert_eq!(entry.status, StatusCode::OK, "{}", entry.text);
    let expected = json!({
        "name": "f", "path": "/workspace/f", "isDirectory": false, "sizeBytes": 1_000_000,
        "modifiedAt": "1970-01-01T00:00:01.000Z", "kind": "file", "mode": "0644",
    });
    assert_eq!(entry.json, expected);
    let read = fixture.call("GET", &path(&id, "?path=/workspace/f")).await;
    assert!(read.status == StatusCode::OK && read.text == text);
    assert_eq!((read.header("content-length"), read.header("accept-ranges")), ("1000000", "bytes"));
    assert_eq!(read.header("last-modified"), "Thu, 01 Jan 1970 00:00:01 GMT");
    assert!(read.header("etag").starts_with('"') && read.header("x-content-type-options") == "nosniff");
    let head = fixture.call("HEAD", &path(&id, "?path=f")).await;
    assert_eq!(
        (head.status, head.text.as_str(), head.header("content-length")),
        (StatusCode::OK, "", "1000000")
    );
    let list = fixture.call("GET", &path(&id, "/list?path=/workspace")).await;
    assert_eq!(list.json["data"], json!([expected]), "{}", list.text);
    assert_eq!(list.json["pagination"], json!({"total": 1, "limit": 20, "offset": 0, "hasMore": false}));
    for (at, exists) in [("f", true), ("g", false)] {
        let answer = fixture.call("GET", &path(&id, &format!("/exists?path={at}"))).await;
        assert_eq!(answer.json, json!({ "exists": exists }));
    }
    let missing = fixture.call("GET", &path(&id, "?path=g")).await;
    assert_eq!((missing.status, missing.code()), (StatusCode::NOT_FOUND, "FILE_NOT_FOUND"));
    assert_eq!(missing.detail("sandboxId"), id);
}

#[tokio::test]
async fn a_body_that_breaks_off_changes_nothing() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    put(&fixture, &path(&id, "?path=f"), "old").await;
    let broken = stream::iter([Ok(Bytes::from_static(b"half")), Err(std::io::Error::other("gone"))]);
    let answer = put(&fixture, &path(&id, "?path=f"), Body::from_stream(broken)).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"));
    assert_eq!(fixture.call("GET", &path(&id, "?path=f")).await.text, "old");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_goes_wrong_is_an_answer_or_a_body_that_is_cut() {
    for manner in [
        AgentMode::Deaf,
        AgentMode::Garbage { after: 2 },
        AgentMode::HangUp { after: 2 },
        AgentMode::OverCredit,
        AgentMode::Wrong,
    ] {
        let fixture = Fixture::new().await;
        let id = fixture.create().await;
        let text = "x".repeat(1_000_000);
        put(&fixture, &path(&id, "?path=f"), text.clone()).await;
        let sandbox = id.parse().unwrap();
        fixture.driver.set_agent_mode_of(&sandbox, manner);
        fixture.driver.hang_up(&sandbox);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        let asked = request("GET", &path(&id, "?path=f")).body(Body::empty()).unwrap();
        let response = fixture.send(asked).await;
        let status = response.status();
        match response.into_body().collect().await {
            Ok(body) if status == StatusCode::OK => {
                assert!(body.to_bytes() == text, "{manner:?} passes for the file");
            }
            Ok(_) => assert_eq!(status, StatusCode::BAD_GATEWAY, "{manner:?}"),
            Err(_) => assert_eq!(status, StatusCode::OK, "{manner:?}"),
        }
    }
}
