//! Exposed ports.

use admission::wall_clock::now;
use api::Timestamp;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use serde_json::json;
use store::KeyRecord;

use super::fixture::{Fixture, bearer};
use crate::testing::{add_key, key_record};

#[tokio::test]
async fn a_token_does_not_outlive_the_key_that_asks_for_it() {
    let fixture = Fixture::new().await;
    let ports = format!("/v1/sandboxes/{}/ports", fixture.create().await);
    assert_eq!(fixture.post(&ports, json!({ "port": 80 })).await.status, StatusCode::CREATED);
    let end = now().after(600_000);
    let record = KeyRecord { expires_at: Some(end), ..key_record(9, "one", "write") };
    add_key(&fixture.service, record).await.unwrap();
    let expiry = async |n: u8, lifetime_ms: u64| {
        let call = Request::builder().method("POST").uri(format!("{ports}/80/token"));
        let call = call.header("authorization", bearer(n)).header("content-type", "application/json");
        let body = json!({ "expiresInMs": lifetime_ms }).to_string();
        let answer = fixture.ask(call.body(Body::from(body)).unwrap()).await;
        assert_eq!(answer.status, StatusCode::CREATED, "{answer:?}");
        answer.json["expiresAt"].as_str().unwrap().parse::<Timestamp>().unwrap()
    };
    assert!(expiry(1, 3_600_000).await > Timestamp::from(end), "this key has no end");
    assert_eq!(expiry(9, 3_600_000).await, Timestamp::from(end));
    assert!(expiry(9, 1000).await < Timestamp::from(end));
}
