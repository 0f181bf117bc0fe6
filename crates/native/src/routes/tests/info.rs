//! What a key can learn about the service.

use axum::http::StatusCode;
use serde_json::json;

use super::fixture::{Fixture, IMAGE};
use crate::testing::gate_of;

#[tokio::test]
async fn info_has_the_backends_and_the_limits() {
    let fixture = Fixture::new().await;
    let info = fixture.call("GET", "/v1/info").await;
    assert_eq!(info.status, StatusCode::OK, "{}", info.text);
    assert_eq!(info.json["version"], env!("CARGO_PKG_VERSION"));
    let container =
        json!({ "name": "container", "network": true, "memorySnapshots": false, "hibernation": false });
    assert_eq!(info.json["backends"], json!([container]));
    assert_eq!(
        (&info.json["defaultIsolation"], &info.json["minimumIsolation"]),
        (&json!("container"), &json!("container"))
    );
    let limits = &info.json["limits"];
    assert_eq!(limits["cpu"], json!([2, 4, 8]));
    assert_eq!(limits["memoryMb"], json!({ "min": 2048, "max": 16_384, "default": 4096 }));
    assert_eq!((&limits["concurrentExecutions"], &limits["detachedExecutions"]), (&json!(3), &json!(32)));
    // The fixture has no rate limits.
    assert_eq!((&limits["createPerMinute"], &limits["operatePerMinute"]), (&json!(null), &json!(null)));
}

#[tokio::test]
async fn info_has_the_rate_limits_of_the_key() {
    let few = rules::Rates { create: 3, ..rules::Rates::default() };
    let fixture =
        Fixture::changed(|service| gate_of(service).limiter = admission::limiter::Limiter::new(few)).await;
    let limits = fixture.call("GET", "/v1/info").await.json["limits"].clone();
    assert_eq!((&limits["createPerMinute"], &limits["operatePerMinute"]), (&json!(3), &json!(600)));
    assert_eq!(limits["readPerMinute"], 300);
}

#[tokio::test]
async fn a_create_gets_the_isolation_that_it_asks_for_or_an_error() {
    let fixture = Fixture::new().await;
    for body in [
        json!({ "image": IMAGE }),
        json!({ "image": IMAGE, "isolation": "auto" }),
        json!({ "image": IMAGE, "isolation": "container" }),
    ] {
        let created = fixture.post("/v1/sandboxes", body).await;
        assert_eq!((created.status, &created.json["isolation"]), (StatusCode::CREATED, &json!("container")));
    }
    let lacking = fixture.post("/v1/sandboxes", json!({ "image": IMAGE, "isolation": "gvisor" })).await;
    assert_eq!((lacking.status, lacking.code()), (StatusCode::BAD_REQUEST, "INVALID_CONFIG"));
    assert_eq!(lacking.detail("field"), "isolation");
    for (wrong, code) in
        [(json!("vm"), "INVALID_CONFIG"), (json!(null), "INVALID_REQUEST"), (json!(1), "INVALID_REQUEST")]
    {
        let refused = fixture.post("/v1/sandboxes", json!({ "image": IMAGE, "isolation": wrong })).await;
        assert_eq!((refused.status, refused.code()), (StatusCode::BAD_REQUEST, code), "{wrong}");
    }
}
