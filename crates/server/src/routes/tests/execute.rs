//! Buffered commands.

use std::time::Duration;

use axum::http::StatusCode;
use driver::fake::AgentMode;
use serde_json::json;

use super::world::{IMAGE, World, json_request};

#[tokio::test]
async fn a_command_is_answered_with_what_it_did() {
    let world = World::new().await;
    let id = world.create().await;
    let ran = world.execute(&id, json!({"command": "echo hello"})).await;
    assert_eq!((ran.status, ran.header("content-type")), (StatusCode::OK, "application/json; charset=utf-8"));
    assert_eq!(
        (&ran.json["stdout"], &ran.json["stderr"], &ran.json["exitCode"]),
        (&json!("hello\n"), &json!(""), &json!(0))
    );
    assert!(ran.json["durationMs"].is_u64() && ran.json["signal"].is_null());
    assert_eq!(ran.json.as_object().unwrap().len(), 5, "{}", ran.text);
    let failed = world.execute(&id, json!({"command": "exit 3"})).await;
    assert_eq!((failed.status, &failed.json["exitCode"]), (StatusCode::OK, &json!(3)));
    let fed = world.execute(&id, json!({"command": "cat", "stdin": "ünï\r\n\u{0}x"})).await;
    assert_eq!(fed.json["stdout"], "ünï\r\n\u{0}x");
    let env = world.execute(&id, json!({"command": "echo $A", "env": {"A": "b"}})).await;
    assert_eq!(env.json["stdout"], "b\n");
    let error = world.execute(&id, json!({"command": "echo oh >&2", "cwd": "/workspace"})).await;
    assert_eq!((&error.json["stdout"], &error.json["stderr"]), (&json!(""), &json!("oh\n")));
    let long = world.execute(&id, json!({"command": "head -c 5000 /dev/zero"})).await;
    assert_eq!((&long.json["stdoutTruncated"], long.json.get("stderrTruncated")), (&json!(true), None));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_answered() {
    let world = World::new().await;
    let id = world.create().await;
    let ended = world.execute(&id, json!({"command": "sleep 1000", "timeoutMs": 30})).await;
    assert_eq!((ended.status, &ended.json["signal"]), (StatusCode::OK, &json!("SIGKILL")));
    assert!(ended.json["exitCode"].is_null());
}

#[tokio::test]
async fn a_paused_sandbox_wakes_unless_told_not_to() {
    let world = World::new().await;
    let id = world.create().await;
    let pause = format!("/v1/sandboxes/{id}/pause");
    assert_eq!(world.call("POST", &pause).await.status, StatusCode::OK);
    let refused = world.execute(&id, json!({"command": "true", "autoResume": false})).await;
    assert_eq!((refused.status, refused.code()), (StatusCode::CONFLICT, "INVALID_STATE"));
    assert_eq!((refused.detail("state"), refused.detail("sandboxId")), ("paused", id.as_str()));
    assert_eq!(world.execute(&id, json!({"command": "true"})).await.json["exitCode"], 0);
    assert_eq!(world.call("GET", &format!("/v1/sandboxes/{id}")).await.json["state"], "running");
}

#[tokio::test]
async fn more_commands_than_places_are_told_to_come_back() {
    let world = World::new().await;
    let id = world.create().await;
    let sleeping = || world.execute(&id, json!({"command": "sleep 1000", "timeoutMs": 300_000}));
    let full = async {
        while world.service.engine.metrics().executions_running < 3 {
            tokio::task::yield_now().await;
        }
        let refused = world.execute(&id, json!({"command": "true"})).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED"));
        assert_eq!(refused.header("retry-after"), "1");
    };
    tokio::select! {
        _ = futures_util::future::join3(sleeping(), sleeping(), sleeping()) => panic!("nobody ended them"),
        () = full => {}
    }
    // Their clients went away, which ends them.
    while world.service.engine.metrics().executions_running > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(world.execute(&id, json!({"command": "true"})).await.status, StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_is_an_execution_error() {
    let world = World::with_clock(engine::Clock::runtime(rules::TimeMs(1_700_000_000_000))).await;
    world.driver.set_agent_mode(AgentMode::Deaf);
    let id = world.create().await;
    let failed = world.execute(&id, json!({"command": "true"})).await;
    assert_eq!((failed.status, failed.code()), (StatusCode::BAD_GATEWAY, "EXECUTION_ERROR"));
    assert_eq!(failed.json["error"]["details"], json!({ "sandboxId": id }));
}

#[tokio::test]
async fn a_key_gives_the_answer_of_the_first_run() {
    let world = World::new().await;
    let id = world.create().await;
    let ask = |command: &str| {
        let body = json!({ "command": command }).to_string();
        let mut asked = json_request(&format!("/v1/sandboxes/{id}/execute"), body);
        asked.headers_mut().insert("idempotency-key", "k".parse().unwrap());
        world.ask(asked)
    };
    let first = ask("echo once").await;
    let again = ask("echo once").await;
    assert_eq!((&first.text, first.header("idempotency-replayed")), (&again.text, ""));
    assert_eq!(again.header("idempotency-replayed"), "true");
    assert_eq!(ask("echo twice").await.code(), "INVALID_REQUEST");
    assert_eq!(world.service.engine.metrics().counts.executions_started, 1);
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_that_names_the_sandbox_keeps_it_awake() {
    let world = World::with_clock(engine::Clock::runtime(rules::TimeMs(1_700_000_000_000))).await;
    let body = json!({"image": IMAGE, "timeoutMs": 86_400_000, "idleTimeoutMs": 120_000});
    let made = world.post("/v1/sandboxes", body).await;
    let id = made.json["id"].as_str().unwrap();
    let state = || async { world.call("GET", &format!("/v1/sandboxes/{id}")).await.json["state"].clone() };
    for refused in [json!({"command": 5}), json!({"command": "x".repeat(65_537)}), json!([])] {
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(world.execute(id, refused).await.status, StatusCode::BAD_REQUEST);
    }
    for (method, path, code) in [
        ("PUT", format!("/v1/sandboxes/{id}/execute"), "METHOD_NOT_ALLOWED"),
        ("POST", format!("/v1/sandboxes/{id}/nope"), "NOT_FOUND"),
        ("PATCH", format!("/v1/sandboxes/%73{}", &id[1..]), "METHOD_NOT_ALLOWED"),
    ] {
        tokio::time::sleep(Duration::from_secs(100)).await;
        assert_eq!(world.call(method, &path).await.code(), code);
    }
    assert_eq!(state().await, "running");
    tokio::time::sleep(Duration::from_secs(125)).await;
    assert_eq!(state().await, "paused", "to look at it keeps it awake no more");
}
