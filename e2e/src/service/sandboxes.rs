//! Requests for sandboxes that must succeed, and the values of their responses. A test fails by their panics.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};

use super::Client;

/// The path of all sandboxes.
pub const SANDBOXES: &str = "/v1/sandboxes";

/// The path of a sandbox.
pub fn sandbox_path(id: &str) -> String {
    format!("{SANDBOXES}/{id}")
}

/// The path of a part of a sandbox or of an action on it, such as `pause`.
pub fn action_path(id: &str, action: &str) -> String {
    format!("{SANDBOXES}/{id}/{action}")
}

/// The state of a sandbox.
pub async fn state(client: &Client, id: &str) -> String {
    text(&client.get(&sandbox_path(id)).await.unwrap().is(200).unwrap()["state"])
}

/// The result of a command.
pub async fn run_command(client: &Client, id: &str, body: Value) -> Value {
    client.post(&action_path(id, "execute"), &body).await.unwrap().is(200).unwrap()
}

/// The output of a command, which must succeed.
pub async fn output(client: &Client, id: &str, command: &str) -> String {
    let result = run_command(client, id, json!({ "command": command })).await;
    assert_eq!(result["exitCode"], 0, "{command}: {result}");
    text(&result["stdout"])
}

/// A value that must be a string.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a string: {value}")).to_owned()
}

/// A value that must be a whole number.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("not a whole number: {value}"))
}
