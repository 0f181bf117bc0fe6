//! Invalid requests.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use proptest::prelude::{Strategy, any, prop};
use proptest::test_runner::{Config, TestRunner};
use serde_json::json;

use super::fixture::{Answer, Fixture, json_request, request};

const ALL: &str = "/v1/sandboxes";

#[tokio::test]
async fn paths_that_name_nothing_are_not_found() {
    let fixture = Fixture::new().await;
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v2/sandboxes",
        "/v1/sandboxes/",
        "//v1/sandboxes",
        "/v1//sandboxes",
        "/V1/sandboxes",
        "/v1/health/",
        "/v1/sandboxes/sb_aaaaaaaa/",
        "/v1/sandboxes/sb_aaaaaaaa/files/",
        "/v1/sandboxes/sb_aaaaaaaa/files/content",
        "/v1/sandboxes/sb_aaaaaaaa/files/list/",
        "/v1/sandboxes/sb_aaaaaaaa//pause",
        "/v1/sandboxes/sb_aaaaaaaa/pause/",
        "/v1/sandboxes/../health",
        "/v1/./health",
        "/docs/../etc/passwd",
        "/docs/docs.html",
        "/%2e%2e/%2e%2e",
        "/v1/sandboxes%2Fx",
        "/v1/%ff",
        "/metrics",
    ] {
        let answer = fixture.call("GET", path).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::NOT_FOUND, "NOT_FOUND"), "{path}");
        assert!(answer.message().contains(path), "{}", answer.message());
    }
}

#[tokio::test]
async fn ids_that_are_none_name_no_sandbox() {
    let fixture = Fixture::new().await;
    let long = format!("sb_{}", "a".repeat(5000));
    for (id, shown) in [
        ("..", ".."),
        ("%2e%2e", ".."),
        ("..%2f..%2fetc", "../../etc"),
        ("sb_", "sb_"),
        ("sb_AAAAAAAA", "sb_AAAAAAAA"),
        ("sb_aaaaaaaa%00", "sb_aaaaaaaa\0"),
        ("sb_aaaaaaaa%0d%0aX-Evil:1", "sb_aaaaaaaa\r\nX-Evil:1"),
        ("%ff%fe", "%ff%fe"),
        ("%zz", "%zz"),
        ("%", "%"),
        ("sb_'%22", "sb_'\""),
        (&long, &long),
    ] {
        for (method, path) in [
            ("GET", format!("/v1/sandboxes/{id}")),
            ("DELETE", format!("/v1/sandboxes/{id}")),
            ("POST", format!("/v1/sandboxes/{id}/pause")),
            ("POST", format!("/v1/sandboxes/{id}/resume")),
        ] {
            let answer = fixture.call(method, &path).await;
            assert_eq!(
                (answer.status, answer.code()),
                (StatusCode::NOT_FOUND, "SANDBOX_NOT_FOUND"),
                "{method} {path}"
            );
            assert_eq!(answer.json["error"]["details"], json!({ "sandboxId": shown }));
            assert!(answer.message().len() < 400 && !answer.message().contains(char::is_control));
        }
        let answer = fixture.execute(id, json!({"command": "true"})).await;
        assert_eq!((answer.status, answer.detail("sandboxId")), (StatusCode::NOT_FOUND, shown));
    }
}

#[tokio::test]
async fn an_id_that_is_encoded_is_the_same_id() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let encoded = format!("%73{}%{:02X}", &id[1..id.len() - 1], id.as_bytes()[id.len() - 1]);
    let path = format!("/v1/sandboxes/{encoded}");
    assert_eq!(fixture.call("GET", &path).await.json["id"], id.as_str());
    assert_eq!(fixture.execute(&encoded, json!({"command": "true"})).await.json["exitCode"], 0);
    for verb in ["pause", "resume"] {
        assert_eq!(fixture.call("POST", &format!("{path}/{verb}")).await.status, StatusCode::OK);
    }
    assert_eq!(fixture.call("DELETE", &path).await.json["id"], id.as_str());
}

#[tokio::test]
async fn bad_bodies_and_queries_say_what_is_wrong() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let execute = format!("/v1/sandboxes/{id}/execute");
    for (path, body, code, field, message) in [
        (ALL, "", "INVALID_REQUEST", "", "the body is empty"),
        (ALL, "{", "INVALID_REQUEST", "", "the body is not valid JSON"),
        (ALL, "{}", "INVALID_REQUEST", "image", "image is missing"),
        (
            ALL,
            r#"{"image":"test:1","resources":{"cpu":3}}"#,
            "INVALID_CONFIG",
            "resources.cpu",
            "resources.cpu is 3; allowed: 2, 4 or 8",
        ),
        (
            ALL,
            r#"{"image":"test:1","timeoutMs":1e999}"#,
            "INVALID_CONFIG",
            "timeoutMs",
            "timeoutMs is above 10^38",
        ),
        (
            ALL,
            r#"{"image":"test:1","env":{"A":"x","A":"y"}}"#,
            "INVALID_REQUEST",
            "env.A",
            "env.A is given twice",
        ),
        (&execute, r#"{"command":null}"#, "INVALID_REQUEST", "command", "command is null"),
        (&execute, r#"{"command":"x","cwd":"y"}"#, "INVALID_CONFIG", "cwd", "cwd is 'y'"),
        (
            &execute,
            &json!({"command": "x".repeat(65_537)}).to_string(),
            "COMMAND_TOO_LONG",
            "command",
            "command is 65537 bytes long",
        ),
    ] {
        let answer = fixture.ask(json_request(path, body.to_owned())).await;
        assert_eq!(
            (answer.status, answer.code(), answer.detail("field")),
            (StatusCode::BAD_REQUEST, code, field),
            "{body}"
        );
        assert!(answer.message().starts_with(message), "{}", answer.message());
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("offset=-1", "offset"),
        ("state=x", "state"),
        ("image=%ff", "image"),
        ("metadata.k=1&metadata.k=2", "metadata.k"),
    ] {
        let answer = fixture.call("GET", &format!("{ALL}?{query}")).await;
        assert_eq!((answer.code(), answer.detail("field")), ("INVALID_REQUEST", field), "{query}");
    }
    let asked = request("POST", ALL).body(json!({"image": "test:1"}).to_string().into()).unwrap();
    assert!(fixture.ask(asked).await.message().starts_with("header Content-Type is missing"));
    for kind in ["text/plain", "application/json; charset=utf-16", "multipart/form-data; boundary=x"] {
        let asked = request("POST", &execute)
            .header("content-type", kind)
            .body(json!({"command": "true"}).to_string().into());
        let answer = fixture.ask(asked.unwrap()).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"), "{kind}");
        assert!(answer.message().starts_with("header Content-Type is '"), "{}", answer.message());
    }
    // Between two slashes the router takes nothing for an id.
    assert_eq!(fixture.call("POST", "/v1/sandboxes//pause").await.code(), "SANDBOX_NOT_FOUND");
    let nested = json_request(ALL, "[".repeat(1_000_000));
    assert_eq!(
        fixture.ask(nested).await.message(),
        "the body is nested too deeply; allowed: at most 64 levels"
    );
}

/// A body of this many bytes, in pieces.
fn endless(bytes: usize) -> Body {
    let piece = Bytes::from(vec![b' '; 64 << 10]);
    let count = bytes.div_ceil(piece.len());
    Body::from_stream(stream::iter((0..count).map(move |_| Ok::<_, Infallible>(piece.clone()))))
}

#[tokio::test]
async fn too_large_bodies_are_refused_and_not_buffered() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let execute = format!("/v1/sandboxes/{id}/execute");
    for (path, most) in [(ALL, 1 << 20), (execute.as_str(), 16 << 20)] {
        let check = |answer: Answer| {
            assert_eq!((answer.status, answer.code()), (StatusCode::PAYLOAD_TOO_LARGE, "INVALID_REQUEST"));
            assert!(
                answer.message().ends_with(&format!("allowed: at most {most} bytes")),
                "{}",
                answer.message()
            );
        };
        check(fixture.ask(json_request(path, endless(100 << 20))).await);
        let mut asked = json_request(path, endless(100 << 20));
        asked.headers_mut().insert("content-length", (100_u64 << 20).into());
        check(fixture.ask(asked).await);
        // An announced length above the limit: the body is not read.
        let mut asked = json_request(path, Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()));
        asked.headers_mut().insert("content-length", u64::MAX.into());
        check(fixture.ask(asked).await);
        // Spaces up to the limit are a body, if an empty one.
        assert_eq!(
            fixture.ask(json_request(path, endless(most))).await.message(),
            "the body is empty; it must be a JSON object"
        );
    }
    let broken = stream::iter([Ok(Bytes::from_static(b"{")), Err("gone")]);
    let answer = fixture.ask(json_request(ALL, Body::from_stream(broken))).await;
    assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"));
}

#[test]
fn no_input_causes_an_internal_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let id = runtime.block_on(fixture.create());
    let execute = format!("/v1/sandboxes/{id}/execute");
    let text = prop::collection::vec(any::<u8>(), 0..60);
    let near = "\\{\"(image|command)\":(\"[a-z:0-9\\\\]{0,8}\"|[0-9.e-]{0,6}|null|\\[\\]),?(\"(timeoutMs|env|resources)\":[{}0-9\"a:]{0,6})?\\}";
    let body = proptest::prelude::prop_oneof![text, near.prop_map(String::into_bytes)];
    let path = "[a-z0-9/._%?&=-]{0,30}";
    let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
    let checked = runner.run(&(body, path, any::<bool>()), |(body, path, is_stream)| {
        for (method, path) in [
            ("POST", ALL.to_owned()),
            ("POST", execute.clone()),
            ("GET", format!("{ALL}?{path}")),
            ("GET", format!("{ALL}/{path}")),
            ("POST", format!("{ALL}/{path}")),
            ("DELETE", format!("/v1/{path}")),
        ] {
            let Ok(asked) = path.parse::<axum::http::Uri>() else { continue };
            let accept = if is_stream { "text/event-stream" } else { "*/*" };
            let asked = Request::builder()
                .method(method)
                .uri(asked)
                .header("authorization", super::fixture::bearer(1));
            let asked = asked.header("content-type", "application/json").header("accept", accept);
            let answer = runtime.block_on(fixture.ask(asked.body(body.clone().into()).unwrap()));
            // 503 is allowed too, in case it creates too many sandboxes.
            assert!(
                answer.status.as_u16() < 500 || answer.status == StatusCode::SERVICE_UNAVAILABLE,
                "{method} {path} {answer:?}"
            );
        }
        Ok(())
    });
    checked.unwrap();
}
