//! Which bodies are read, and how many at once.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt, stream};
use serde_json::json;

use super::fixture::{Fixture, json_request};

const NOBODY: &str = "/v1/sandboxes/sb_aaaaaaaaaaaaaaaaaaaaaaaaaa/execute";

/// A body of this many bytes that does not end.
fn unfinished(bytes: usize) -> Body {
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    let count = bytes.div_ceil(piece.len());
    let pieces = stream::iter((0..count).map(move |_| Ok::<_, Infallible>(piece.clone())));
    Body::from_stream(pieces.chain(stream::pending()))
}

#[tokio::test]
async fn no_body_is_read_for_an_unknown_sandbox() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let ended = format!("/v1/sandboxes/{id}/execute");
    assert_eq!(fixture.call("DELETE", &format!("/v1/sandboxes/{id}")).await.status, StatusCode::OK);
    // Also with an unused idempotency key.
    for (path, state, key) in
        [(NOBODY, "", ""), (NOBODY, "", "k"), (&ended, "terminated", ""), (&ended, "terminated", "k")]
    {
        let mut asked = json_request(path, unfinished(1));
        if !key.is_empty() {
            asked.headers_mut().insert("idempotency-key", key.parse().unwrap());
        }
        let answer = fixture.ask(asked).await;
        assert_eq!((answer.code(), answer.detail("state")), ("SANDBOX_NOT_FOUND", state), "{path} {key}");
    }
}

#[tokio::test]
async fn the_answer_under_a_key_outlives_its_sandbox() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let ask = || {
        let body = json!({"command": "echo once"}).to_string();
        let mut asked = json_request(&format!("/v1/sandboxes/{id}/execute"), body);
        asked.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        fixture.ask(asked)
    };
    let first = ask().await;
    assert_eq!(fixture.call("DELETE", &format!("/v1/sandboxes/{id}")).await.status, StatusCode::OK);
    let again = ask().await;
    assert_eq!((&again.text, again.header("idempotency-replayed")), (&first.text, "true"));
}

#[tokio::test]
async fn replays_of_posted_events_survive_termination() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let ask = || {
        let body = json!({"type": "agent.thinking", "runId": "r", "data": {}}).to_string();
        let mut asked = json_request(&format!("/v1/sandboxes/{id}/events"), body);
        asked.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        fixture.ask(asked)
    };
    assert_eq!(ask().await.status, StatusCode::CREATED);
    assert_eq!(fixture.call("DELETE", &format!("/v1/sandboxes/{id}")).await.status, StatusCode::OK);
    let again = ask().await;
    assert_eq!((again.status, again.header("idempotency-replayed")), (StatusCode::CREATED, "true"));
}

#[tokio::test]
async fn a_body_that_comes_too_slowly_is_a_request_that_does() {
    let fixture = Fixture::new().await;
    let slow = || listen::BodyError::TooSlow { bytes_per_second: 1, limit_ms: 1 };
    let body = Body::from_stream(stream::iter([Ok(Bytes::from_static(b"{")), Err(slow())]));
    let answer = fixture.ask(json_request("/v1/sandboxes", body)).await;
    assert_eq!(answer.status, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(answer.json["error"]["code"], "INVALID_REQUEST");
}

#[tokio::test]
async fn a_name_given_twice_is_not_the_same_body() {
    let fixture = Fixture::new().await;
    let ask = |body: &'static str| {
        let mut asked = json_request("/v1/sandboxes", body);
        asked.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        fixture.ask(asked)
    };
    assert_eq!(ask(r#"{"image":"test:1","timeoutMs":600000}"#).await.status, StatusCode::CREATED);
    let twice = ask(r#"{"timeoutMs":5,"timeoutMs":600000,"image":"test:1"}"#).await;
    assert_eq!((twice.status, twice.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"));
}

#[tokio::test(start_paused = true)]
async fn large_bodies_at_once_are_bounded_and_small_ones_pass() {
    let fixture = Fixture::with_clock(engine::Clock::runtime(rules::TimeMs(1_700_000_000_000))).await;
    let id = fixture.create().await;
    let path = format!("/v1/sandboxes/{id}/execute");
    let all = fixture.service.gate.request_memory.reserved_bytes();
    let flood = futures_util::future::join_all(
        (0..40).map(|_| fixture.ask(json_request(&path, unfinished(15 << 20)))),
    );
    let others = async {
        // By then, refused bodies have got their response.
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(fixture.service.gate.request_memory.reserved_bytes() <= 48 << 20, "one account takes all");
        assert_eq!(fixture.execute(&id, json!({"command": "true"})).await.json["exitCode"], 0);
        let large = json!({"command": "cat >/dev/null", "stdin": "x".repeat(1 << 20)}).to_string();
        let refused = fixture.ask(json_request(&path, large)).await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!((refused.code(), refused.header("retry-after")), ("RESOURCE_EXHAUSTED", "5"));
    };
    tokio::select! {
        _ = flood => panic!("their bodies have no end"),
        () = others => {}
    }
    assert_eq!(fixture.service.gate.request_memory.reserved_bytes(), all);
    let large = json!({"command": "true", "stdin": "x".repeat(1 << 20)}).to_string();
    assert_eq!(fixture.ask(json_request(&path, large)).await.status, StatusCode::OK);
    assert_eq!(fixture.service.gate.request_memory.reserved_bytes(), all);
}

#[tokio::test]
async fn a_body_is_released_before_its_build_context_is_read() {
    let fixture = Fixture::new().await;
    let context = STANDARD.encode(vec![0; 512 << 10]);
    let body = json!({"name": "web", "dockerfile": "FROM test:1\n", "context": context}).to_string();
    let (first, rest) = body.split_at(256 << 10);
    let pieces = stream::iter([first.to_owned(), rest.to_owned()]).then(async |piece| {
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(piece)
    });
    let mut asked = Box::pin(fixture.ask(json_request("/v1/templates", Body::from_stream(pieces))));
    let mut reserved = Vec::new();
    let answer = loop {
        if let Some(answer) = asked.as_mut().now_or_never() {
            break answer;
        }
        reserved.push(fixture.service.gate.request_memory.reserved_bytes());
        tokio::task::yield_now().await;
    };
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    assert!(reserved.iter().any(|bytes| *bytes > 0) && reserved.last() == Some(&0), "{reserved:?}");
}
