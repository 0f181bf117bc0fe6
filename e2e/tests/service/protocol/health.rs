//! Health needs no key and counts against no rate limit.

use e2e::service::{Service, ServiceOptions};
use hyper::Method;

use crate::shared_service;

#[tokio::test]
async fn health_needs_no_key_and_ignores_invalid_ones() {
    let service = shared_service().await;
    let anonymous = service.anonymous().unwrap();
    for client in [
        anonymous.clone(),
        anonymous.with_authorization("Bearer nonsense"),
        anonymous.with_authorization("x"),
    ] {
        let health = client.get("/v1/health").await.unwrap().is(200).unwrap();
        assert_eq!(health["status"], "ok");
    }
    for method in [Method::POST, Method::DELETE, Method::PUT] {
        let answer = anonymous.call(method, "/v1/health").send().await.unwrap();
        assert!([401, 405].contains(&answer.status), "{}", answer.status);
    }
}

#[tokio::test]
async fn health_counts_against_no_limit() {
    let service =
        Service::start(&ServiceOptions::default().with("limits", "read_per_minute", "3")).await.unwrap();
    let client = service.client_with_new_key("someone", "read").await.unwrap();
    let before = client.get("/v1/sandboxes").await.unwrap();
    for _ in 0..20 {
        client.get("/v1/health").await.unwrap().is(200).unwrap();
    }
    let after = client.get("/v1/sandboxes").await.unwrap();
    let left = |answer: &e2e::service::HttpResponse| answer.number("x-ratelimit-remaining").unwrap();
    assert_eq!((after.status, left(&after) + 1), (200, left(&before)));
}
