//! Buffered commands.

use std::time::Duration;

use axum::http::StatusCode;
use driver::fake::AgentMode;
use serde_json::json;

use super::fixture::{Fixture, IMAGE, json_request};

#[tokio::test]
async fn the_response_has_the_result_of_the_command() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let ran = fixture.execute(&id, json!({"command": "echo hello"})).await;
    assert_eq!((ran.status, ran.header("content-type")), (StatusCode::OK, "application/json; charset=utf-8"));
    assert_eq!(
        (&ran.json["stdout"], &ran.json["stderr"], &ran.json["exitCode"]),
        (&json!("hello\n"), &json!(""), &json!(0))
    );
    assert!(ran.json["durationMs"].is_u64() && ran.json["signal"].is_null());
    assert_eq!(ran.json.as_object().unwrap().len(), 5, "{}", ran.text);
    let failed = fixture.execute(&id, json!({"command": "exit 3"})).await;
    assert_eq!((failed.status, &failed.json["exitCode"]), (StatusCode::OK, &json!(3)));
    let fed = fixture.execute(&id, json!({"command": "cat", "stdin": "ünï\r\n\u{0}x"})).await;
    assert_eq!(fed.json["stdout"], "ünï\r\n\u{0}x");
    let env = fixture.execute(&id, json!({"command": "echo $A", "env": {"A": "b"}})).await;
    assert_eq!(env.json["stdout"], "b\n");
    let error = fixture.execute(&id, json!({"command": "echo oh >&2", "cwd": "/workspace"})).await;
    assert_eq!((&error.json["stdout"], &error.json["stderr"]), (&json!(""), &json!("oh\n")));
    let long = fixture.execute(&id, json!({"command": "head -c 5000 /dev/zero"})).await;
    assert_eq!((&long.json["stdoutTruncated"], long.json.get("stderrTruncated")), (&json!(true), None));
}

#[tokio::test]
async fn a_command_that_times_out_is_killed_and_reported() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let ended = fixture.execute(&id, json!({"command": "sleep 1000", "timeoutMs": 30})).await;
    assert_eq!((ended.status, &ended.json["signal"]), (StatusCode::OK, &json!("SIGKILL")));
    assert!(ended.json["exitCode"].is_null());
    let message = "the command was killed at its timeoutMs of 30";
    assert_eq!((&ended.json["reason"], &ended.json["message"]), (&json!("timeout"), &json!(message)));
}

#[tokio::test]
async fn a_paused_sandbox_is_resumed_unless_auto_resume_is_off() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let pause = format!("/v1/sandboxes/{id}/pause");
    assert_eq!(fixture.call("POST", &pause).await.status, StatusCode::OK);
    let refused = fixture.execute(&id, json!({"command": "true", "autoResume": false})).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "INVALID_STATE"));
    assert_eq!((refused.detail("state"), refused.detail("sandboxId")), ("paused", id.as_str()));
    assert_eq!(fixture.execute(&id, json!({"command": "true"})).await.json["exitCode"], 0);
    assert_eq!(fixture.call("GET", &format!("/v1/sandboxes/{id}")).await.json["state"], "running");
}

#[tokio::test]
async fn commands_beyond_the_slots_are_rate_limited() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let sleeping = || fixture.execute(&id, json!({"command": "sleep 1000", "timeoutMs": 300_000}));
    let full = async {
        while fixture.service.engine.metrics().executions_running < 3 {
            tokio::task::yield_now().await;
        }
        let refused = fixture.execute(&id, json!({"command": "true"})).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED"));
        assert_eq!(refused.header("retry-after"), "1");
    };
    tokio::select! {
        _ = futures_util::future::join3(sleeping(), sleeping(), sleeping()) => panic!("nobody ended them"),
        () = full => {}
    }
    // Their clients went away, which ends them.
    while fixture.service.engine.metrics().executions_running > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(fixture.execute(&id, json!({"command": "true"})).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_is_an_execution_error() {
    let fixture = Fixture::with_clock(engine::Clock::runtime(rules::TimeMs(1_700_000_000_000))).await;
    fixture.driver.set_agent_mode(AgentMode::Deaf);
    let id = fixture.create().await;
    let failed = fixture.execute(&id, json!({"command": "true"})).await;
    assert_eq!((failed.status, failed.code()), (StatusCode::BAD_GATEWAY, "EXECUTION_ERROR"));
    assert_eq!(failed.json["error"]["details"], json!({ "sandboxId": id }));
}

#[tokio::test]
async fn a_key_gives_the_answer_of_the_first_run() {
    let fixture = Fixture::new().await;
    let id = fixture.create().await;
    let ask = |command: &str| {
        let body = json!({ "command": command }).to_string();
        let mut asked = json_request(&format!("/v1/sandboxes/{id}/execute"), body);
        asked.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        fixture.ask(asked)
    };
    let first = ask("echo once").await;
    let again = ask("echo once").await;
    assert_eq!((&first.text, first.header("idempotency-replayed")), (&again.text, ""));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(ask("echo twice").await.code(), "INVALID_REQUEST");
    assert_eq!(fixture.service.engine.metrics().counts.executions_started, 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_for_the_sandbox_counts_as_activity() {
    let fixture = Fixture::with_clock(engine::Clock::runtime(rules::TimeMs(1_700_000_000_000))).await;
    let body = json!({"image": IMAGE, "timeoutMs": 86_400_000, "idleTimeoutMs": 120_000});
    let created = fixture.post("/v1/sandboxes", body).await;
    let id = created.json["id"].as_str().unwrap();
    let state = || async { fixture.call("GET", &format!("/v1/sandboxes/{id}")).await.json["state"].clone() };
    for refused in [json!({"command": 5}), json!({"command": "x".repeat(65_537)}), json!([])] {
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(fixture.execute(id, refused).await.status, StatusCode::BAD_REQUEST);
    }
    for (method, path, code) in [
        ("PUT", format!("/v1/sandboxes/{id}/execute"), "METHOD_NOT_ALLOWED"),
        ("POST", format!("/v1/sandboxes/{id}/nope"), "NOT_FOUND"),
        ("PATCH", format!("/v1/sandboxes/%73{}", &id[1..]), "METHOD_NOT_ALLOWED"),
    ] {
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(fixture.call(method, &path).await.code(), code);
    }
    assert_eq!(state().await, "running");
    tokio::time::sleep(Duration::from_secs(125)).await;
    assert_eq!(state().await, "paused", "to look at it keeps it awake no more");
}
