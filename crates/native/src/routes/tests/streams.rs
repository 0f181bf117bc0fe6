//! Commands as Server-Sent Events.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};

use super::fixture::{Answer, Fixture, json_request};

fn streamed(id: &str, body: &Value) -> Request<Body> {
    let mut asked = json_request(&format!("/v1/sandboxes/{id}/execute"), body.to_string());
    asked.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
    asked
}

async fn stream(fixture: &Fixture, id: &str, body: Value) -> Answer {
    fixture.ask(streamed(id, &body)).await
}

/// Events by name and data, read as a client reads them.
fn events(text: &str) -> Vec<(String, String)> {
    let mut events = Vec::new();
    let (mut name, mut data): (String, Vec<&str>) = Default::default();
    for line in text.split('\n') {
        match line.split_once(": ") {
            _ if line.is_empty() && !data.is_empty() => {
                events.push((std::mem::take(&mut name), std::mem::take(&mut data).join("\n")));
            }
            Some(("event", value)) => name = value.to_owned(),
            Some(("data", value)) => data.push(value),
            _ => assert!(line.is_empty() || line.starts_with(':'), "{line:?}"),
        }
    }
    assert!(data.is_empty() && text.ends_with("\n\n"), "an event without its end");
    events
}

#[tokio::test]
async fn every_line_is_an_event_and_done_is_the_last() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let answer = stream(&fixture, &id, json!({"command": "echo hello"})).await;
    assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, "text/event-stream"));
    let (lines, done) = answer.text.split_once("event: done\n").unwrap();
    assert_eq!(lines, "event: stdout\ndata: hello\n\n");
    let done: Value = serde_json::from_str(done.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(
        (&done["exitCode"], &done["signal"], done.as_object().unwrap().len()),
        (&json!(0), &Value::Null, 3)
    );
    let error = stream(&fixture, &id, json!({"command": "echo oh >&2"})).await;
    assert!(error.text.starts_with("event: stderr\ndata: oh\n\nevent: done\n"), "{}", error.text);
    let silent = stream(&fixture, &id, json!({"command": "exit 3"})).await;
    assert!(silent.text.starts_with("event: done\ndata: {\"exitCode\":3,"), "{}", silent.text);
    let killed = stream(&fixture, &id, json!({"command": "sleep 1000", "timeoutMs": 20})).await;
    assert!(killed.text.contains("\"exitCode\":null") && killed.text.contains("\"signal\":\"SIGKILL\""));
    assert!(killed.text.contains("\"reason\":\"timeout\",\"message\":\""), "{}", killed.text);
}

#[tokio::test]
async fn lines_cannot_break_out_of_their_event() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let stdin = "a\r\n\n  data: x\nevent: done\n: c\nb\rc\n\u{0}é\u{feff}\nlast";
    let answer = stream(&fixture, &id, json!({"command": "cat", "stdin": stdin})).await;
    let got = events(&answer.text);
    let lines: Vec<&str> =
        got.iter().filter(|(name, _)| name == "stdout").map(|(_, data)| data.as_str()).collect();
    assert_eq!(lines, ["a", "", "  data: x", "event: done", ": c", "b\nc", "\u{0}é\u{feff}", "last"]);
    assert_eq!(got.last().unwrap().0, "done");
    assert_eq!(got.iter().filter(|(name, _)| name == "done").count(), 1);
    assert!(!answer.text.contains('\r'));
}

#[tokio::test]
async fn many_lines_are_sent_in_few_chunks() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let stdin: String = (0..50_000).map(|n| format!("line {n} {}\n", "x".repeat(80))).collect();
    let response = fixture.send(streamed(&id, &json!({"command": "cat", "stdin": stdin}))).await;
    let mut body = response.into_body();
    let (mut text, mut chunks) = (String::new(), 0);
    while let Some(frame) = body.frame().await {
        let data: Bytes = frame.unwrap().into_data().unwrap();
        assert!(data.len() < 64 * 1024 + 300, "{} bytes", data.len());
        assert!(data.ends_with(b"\n\n") && data.starts_with(b"event: "), "a chunk of whole events");
        text += std::str::from_utf8(&data).unwrap();
        chunks += 1;
    }
    let got = events(&text);
    assert_eq!(got.len(), 50_001);
    for (n, (_, line)) in got[..50_000].iter().enumerate() {
        assert!(line.starts_with(&format!("line {n} x")), "{line}");
    }
    assert!(chunks < 2_000, "{chunks} chunks");
}

#[tokio::test]
async fn a_long_line_comes_in_pieces() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let got =
        events(&stream(&fixture, &id, json!({"command": "cat", "stdin": "é".repeat(100_000)})).await.text);
    assert_eq!(got.len(), 5);
    assert!(got[..4].iter().all(|(name, line)| name == "stdout" && line.len() <= 65_536));
    assert_eq!(got[..4].iter().map(|(_, line)| line.as_str()).collect::<String>(), "é".repeat(100_000));
}

#[tokio::test]
async fn errors_before_a_stream_are_json() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let bad = stream(&fixture, &id, json!({})).await;
    assert_eq!((bad.status, bad.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"));
    let unknown = stream(&fixture, "sb_unknown0", json!({"command": "true"})).await;
    assert_eq!((unknown.status, unknown.detail("sandboxId")), (StatusCode::NOT_FOUND, "sb_unknown0"));
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_sends_keep_alives() {
    let fixture = Fixture::with_clock(engine::Clock::runtime(rules::TimeMs(1_700_000_000_000))).await;
    let id = fixture.create().await;
    let answer = stream(&fixture, &id, json!({"command": "sleep 40"})).await;
    assert_eq!(answer.text.matches(": still running\n\n").count(), 2, "{}", answer.text);
    assert!(events(&answer.text).last().unwrap().1.starts_with("{\"exitCode\":0,"));
}

#[tokio::test]
async fn a_daemon_that_stops_says_so_and_ends_the_command() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let response = fixture.send(streamed(&id, &json!({"command": "sleep 1000"}))).await;
    let request_id = response.headers()["x-request-id"].to_str().unwrap().to_owned();
    fixture.service.stopping.cancel();
    let got = events(&Answer::of(response).await.text);
    let (name, data) = &got[0];
    let object: Value = serde_json::from_str(data).unwrap();
    assert_eq!((got.len(), name.as_str(), &object["code"]), (1, "error", &json!("RESOURCE_EXHAUSTED")));
    assert_eq!((&object["requestId"], object["details"].is_object()), (&json!(request_id), true));
    while fixture.service.engine.metrics().executions_running > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_disconnect_ends_the_command() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let response = fixture.send(streamed(&id, &json!({"command": "sleep 1000"}))).await;
    assert_eq!(fixture.service.engine.metrics().executions_running, 1);
    drop(response);
    while fixture.service.engine.metrics().executions_running > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_sandbox_that_dies_under_a_command_is_an_error_event() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let response = fixture.send(streamed(&id, &json!({"command": "sleep 1000"}))).await;
    fixture.driver.crash(&id.parse().unwrap());
    let got = events(&Answer::of(response).await.text);
    let (name, data) = got.last().unwrap();
    let object: Value = serde_json::from_str(data).unwrap();
    assert_eq!((name.as_str(), &object["code"]), ("error", &json!("EXECUTION_ERROR")));
}

#[tokio::test]
async fn line_endings_are_sent_on_request() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let body = json!({"command": "cat", "stdin": "a\r\nb\nc"}).to_string();
    let asked = async |query: &str| {
        let mut asked = json_request(&format!("/v1/sandboxes/{id}/execute{query}"), body.clone());
        asked.headers_mut().insert("accept", "text/event-stream".parse().unwrap());
        fixture.ask(asked).await
    };
    let answer = asked("?lineEnds=true").await;
    let (lines, _) = answer.text.split_once("event: done\n").unwrap();
    let told = ["a\nend: crlf", "b", "c\nend: none"].map(|data| format!("event: stdout\ndata: {data}\n\n"));
    assert_eq!(lines, told.concat());
    assert!(!asked("").await.text.contains("end: "));
    assert_eq!(asked("?lineEnds=2").await.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn exact_bytes_are_sent_on_request() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let body = json!({"command": "cat", "stdin": "a\r\nb"}).to_string();
    let asked = async |accept: &str, query: &str| {
        let mut asked = json_request(&format!("/v1/sandboxes/{id}/execute{query}"), body.clone());
        asked.headers_mut().insert("accept", accept.parse().unwrap());
        fixture.ask(asked).await
    };
    for query in ["?encoding=base64", "?lineEnds=true&encoding=base64"] {
        let answer = asked("text/event-stream", query).await;
        let (events, _) = answer.text.split_once("event: done\n").unwrap();
        assert_eq!(events, "event: stdout\ndata: YQ0KYg==\nencoding: base64\n\n");
    }
    let result: Value = serde_json::from_str(&asked("*/*", "?encoding=base64").await.text).unwrap();
    assert_eq!((&result["stdout"], &result["encoding"]), (&json!("YQ0KYg=="), &json!("base64")));
    let result: Value = serde_json::from_str(&asked("*/*", "?encoding=text").await.text).unwrap();
    assert_eq!((&result["stdout"], result.get("encoding")), (&json!("a\r\nb"), None));
    assert_eq!(asked("*/*", "?encoding=hex").await.status, StatusCode::BAD_REQUEST);
}
