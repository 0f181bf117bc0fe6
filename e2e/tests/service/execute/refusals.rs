//! Invalid commands.

use hyper::Method;
use serde_json::{Map, Value, json};

use crate::{action_path, create_sandbox, run_command, text, user};

#[tokio::test]
async fn length_is_counted_in_bytes_of_utf_8() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "execute");
    let padded = |length: usize| format!("echo fits # {}", "x".repeat(length - 12));
    assert_eq!(padded(65_536).len(), 65_536);
    let result = run_command(&client, &id, json!({ "command": padded(65_536) })).await;
    assert_eq!(result["stdout"], "fits\n");
    for command in [padded(65_537), padded(1_000_000), "€".repeat(21_846)] {
        let error = client.post(&path, &json!({ "command": command })).await.unwrap();
        let message = text(&error.error(400, "COMMAND_TOO_LONG").unwrap()["message"]);
        assert!(message.contains(&command.len().to_string()) && message.contains("65536"), "{message}");
    }
    // 65,535 bytes of three-byte characters are accepted, whatever bash does with them.
    run_command(&client, &id, json!({ "command": format!(": {}", "€".repeat(21_844)) })).await;
}

#[tokio::test]
async fn wrong_types_are_invalid_request_and_values_invalid_config() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "execute");
    let many: Map<String, Value> = (0..1_001).map(|n| (format!("V{n}"), json!(""))).collect();
    for (body, code, expected_text) in [
        (json!({}), "INVALID_REQUEST", "command"),
        (json!({ "cmd": "true" }), "INVALID_REQUEST", "command"),
        (json!({ "command": null }), "INVALID_REQUEST", "command"),
        (json!({ "command": 5 }), "INVALID_REQUEST", "command"),
        (json!({ "command": ["true"] }), "INVALID_REQUEST", "command"),
        (json!({ "command": "true", "cwd": 1 }), "INVALID_REQUEST", "cwd"),
        (json!({ "command": "true", "cwd": null }), "INVALID_REQUEST", "cwd"),
        (json!({ "command": "true", "env": [] }), "INVALID_REQUEST", "env"),
        (json!({ "command": "true", "env": { "A": 1 } }), "INVALID_REQUEST", "env"),
        (json!({ "command": "true", "timeoutMs": "5" }), "INVALID_REQUEST", "timeoutMs"),
        (json!({ "command": "true", "timeoutMs": 1.5 }), "INVALID_REQUEST", "timeoutMs"),
        (json!({ "command": "true", "stdin": 5 }), "INVALID_REQUEST", "stdin"),
        (json!({ "command": "true", "autoResume": "no" }), "INVALID_REQUEST", "autoResume"),
        (json!({ "command": "true", "timeoutMs": 0 }), "INVALID_CONFIG", "timeoutMs"),
        (json!({ "command": "true", "timeoutMs": -1 }), "INVALID_CONFIG", "timeoutMs"),
        (json!({ "command": "true", "timeoutMs": 300_001 }), "INVALID_CONFIG", "timeoutMs"),
        (json!({ "command": "true", "timeoutMs": u64::MAX }), "INVALID_CONFIG", "timeoutMs"),
        (json!({ "command": "true", "cwd": "relative" }), "INVALID_CONFIG", "cwd"),
        (json!({ "command": "true\u{0}" }), "INVALID_CONFIG", "command"),
        (json!({ "command": "true", "env": { "=": "" } }), "INVALID_CONFIG", "env"),
        (json!({ "command": "true", "env": many }), "INVALID_CONFIG", "env"),
    ] {
        // The same errors for streams.
        for accept in ["application/json", "text/event-stream"] {
            let call = client.call(Method::POST, &path).header("accept", accept).json(&body);
            let excerpt: String = body.to_string().chars().take(100).collect();
            let error =
                call.send().await.unwrap().error(400, code).unwrap_or_else(|e| panic!("{excerpt}: {e:#}"));
            assert!(text(&error["message"]).contains(expected_text), "{excerpt}: {error}");
        }
    }
    // Unknown fields that resemble no known one are ignored; the maximum timeout is accepted.
    let result =
        run_command(&client, &id, json!({ "command": "echo ok", "timeoutMs": 300_000, "shell": "zsh" }))
            .await;
    assert_eq!(result["stdout"], "ok\n");
}
