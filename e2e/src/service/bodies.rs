//! Request bodies for tests.

use serde_json::{Value, json};

use super::Service;

/// The body of a create for a small sandbox without idle pause.
pub fn small() -> Value {
    json!({
        "image": Service::image(),
        "resources": { "memoryMb": 2048, "diskMb": 5120 },
        "timeoutMs": 3_600_000,
        "idleTimeoutMs": 0,
    })
}

/// The body with another value of a field.
pub fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}
