//! What an account uses of its quotas.

use axum::http::StatusCode;
use serde_json::json;

use super::fixture::{Fixture, IMAGE};

#[tokio::test]
async fn usage_follows_the_sandboxes_of_the_account() {
    let fixture = Fixture::new().await;
    let empty = fixture.call("GET", "/v1/usage").await;
    assert_eq!(empty.status, StatusCode::OK, "{}", empty.text);
    assert_eq!(empty.json["account"], "one");
    assert_eq!(empty.json["sandboxes"], json!({ "used": 0, "allowed": null }));
    // This request itself.
    assert_eq!(empty.json["connections"]["used"], 1);

    let made = fixture.post("/v1/sandboxes", json!({ "image": IMAGE })).await;
    let id = made.json["id"].as_str().unwrap();
    let running = fixture.call("GET", "/v1/usage").await.json;
    let used =
        ["sandboxes", "vcpus", "memoryMb", "diskMb"].map(|name| running[name]["used"].as_u64().unwrap());
    assert_eq!(used, [1, 2, 4096, 10_240]);
    assert!(running["eventBytes"]["used"].as_u64().unwrap() > 0);

    fixture.call("POST", &format!("/v1/sandboxes/{id}/pause")).await;
    let paused = fixture.call("GET", "/v1/usage").await.json;
    let used =
        ["sandboxes", "vcpus", "memoryMb", "diskMb"].map(|name| paused[name]["used"].as_u64().unwrap());
    assert_eq!(used, [1, 0, 0, 10_240]);
}
