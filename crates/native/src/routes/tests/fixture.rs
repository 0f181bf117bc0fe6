//! The test harness: a service, its requests and responses.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use driver::fake::FakeDriver;
use engine::Clock;
use http_body_util::BodyExt;
use image::{Catalogue, Images};
use rules::Capacity;
use serde_json::Value;
use service::Service;

use crate::layers::Guarded;
use crate::testing::{Harness, Settings, key};

pub const IMAGE: &str = "test:1";
/// Answers a connection with nothing, ever.
pub const HANGING: &str = "hanging:1";
/// Sandboxes of the default size that fit.
pub const FIT: usize = 12;

pub struct Fixture {
    pub driver: FakeDriver,
    pub service: Arc<Service>,
    pub guarded: Guarded,
    harness: Harness,
}

/// `Authorization` with key `n` of the [`Harness`].
pub fn bearer(n: u8) -> String {
    format!("Bearer {}", key(n).as_str())
}

impl Fixture {
    pub async fn new() -> Self {
        Self::build(Clock::System, false).await
    }

    /// With `images.allow_any`.
    pub async fn with_any_image() -> Self {
        Self::build(Clock::System, true).await
    }

    /// With `images.allow_any` and a service that `change` has changed.
    pub async fn with_any_image_changed(change: impl FnOnce(&mut Service)) -> Self {
        Self::build_with(Clock::System, true, change).await
    }

    pub async fn with_clock(clock: Clock) -> Self {
        Self::build(clock, false).await
    }

    /// With a service that `change` has changed.
    pub async fn changed(change: impl FnOnce(&mut Service)) -> Self {
        Self::build_with(Clock::System, false, change).await
    }

    async fn build(clock: Clock, allow_any_image: bool) -> Self {
        Self::build_with(clock, allow_any_image, |_| ()).await
    }

    async fn build_with(clock: Clock, allow_any_image: bool, change: impl FnOnce(&mut Service)) -> Self {
        let settings = Settings {
            clock,
            allow_any_image,
            ready: &[IMAGE],
            hanging: HANGING,
            capacity: Capacity { cpu: 1000, memory_mb: 4096 * FIT as u64, disk_mb: 1_000_000 },
            max_output_bytes: 1024,
        };
        let harness = Harness::with(settings, change).await.unwrap();
        Self {
            driver: harness.driver.clone(),
            service: Arc::clone(&harness.service),
            guarded: harness.guarded.clone(),
            harness,
        }
    }

    /// The same images as another process of this host has them.
    pub fn images_beside(&self) -> Images {
        Images::open(&self.harness.images_dir(), Catalogue::default(), image::Options::default()).unwrap()
    }

    /// An image of the registry that answers nothing.
    pub fn hanging_reference(&self, name: &str) -> String {
        format!("{}/{name}", self.harness.registry.local_addr().unwrap())
    }

    pub fn registry_port(&self) -> u16 {
        self.harness.registry.local_addr().unwrap().port()
    }

    pub async fn send(&self, request: Request<Body>) -> axum::response::Response {
        self.guarded.clone().pass(request).await
    }

    pub async fn ask(&self, request: Request<Body>) -> Answer {
        Answer::of(self.send(request).await).await
    }

    /// Without a body, as account `one`.
    pub async fn call(&self, method: &str, path: &str) -> Answer {
        self.ask(request(method, path).body(Body::empty()).unwrap()).await
    }

    /// With a body of JSON, as account `one`.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.ask(json_request(path, body.to_string())).await
    }

    /// With a body of JSON, as account `one`.
    pub async fn patch(&self, path: &str, body: impl Into<Body>) -> Answer {
        let request = request("PATCH", path).header("content-type", "application/json");
        self.ask(request.body(body.into()).unwrap()).await
    }

    pub async fn create(&self) -> String {
        let created = self.post("/v1/sandboxes", serde_json::json!({ "image": IMAGE })).await;
        assert_eq!(created.status, StatusCode::CREATED, "{}", created.text);
        created.json["id"].as_str().unwrap().to_owned()
    }

    pub async fn execute(&self, id: &str, body: Value) -> Answer {
        self.post(&format!("/v1/sandboxes/{id}/execute"), body).await
    }
}

/// A request of account `one`.
pub fn request(method: &str, path: &str) -> axum::http::request::Builder {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    Request::builder().method(method).uri(path).header("authorization", bearer(1))
}

pub fn json_request(path: &str, body: impl Into<Body>) -> Request<Body> {
    request("POST", path).header("content-type", "application/json").body(body.into()).unwrap()
}

/// A response, checked for the parts that every response has.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
    /// `Null` if the body is not JSON.
    pub json: Value,
}

impl Answer {
    pub async fn of(response: axum::response::Response) -> Self {
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let json = serde_json::from_str(&text).unwrap_or_default();
        let answer = Self { status: parts.status, headers: parts.headers, text, json };
        answer.check();
        answer
    }

    fn check(&self) {
        for name in ["x-request-id", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
            assert!(self.headers.contains_key(name), "no {name} in {self:?}");
        }
        if self.status.as_u16() >= 400 && !self.text.is_empty() {
            let error = &self.json["error"];
            assert_eq!(self.header("content-type"), "application/json; charset=utf-8");
            assert_eq!(error["requestId"], self.header("x-request-id"));
            assert!(error["details"].is_object() && error["message"].is_string(), "{error}");
            let code: api::ErrorCode = error["code"].as_str().unwrap().parse().unwrap();
            if [429, 503].contains(&self.status.as_u16()) {
                self.check_refusal();
            }
            let own = [408, 413].contains(&self.status.as_u16());
            assert!(own || code.status() == self.status.as_u16(), "{self:?}");
        }
    }

    /// A client can show what refuses, and knows when to try again.
    fn check_refusal(&self) {
        let details = &self.json["error"]["details"];
        assert_eq!(details["retryAfter"].to_string(), self.header("retry-after"), "{self:?}");
        assert!(self.message().contains(&format!("try again in {} s", details["retryAfter"])), "{self:?}");
        let is_limit = details["limit"].is_string() && details["value"].is_u64();
        assert!(is_limit != details["condition"].is_string(), "{self:?}");
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub fn code(&self) -> &str {
        self.json["error"]["code"].as_str().unwrap_or_default()
    }

    pub fn message(&self) -> &str {
        self.json["error"]["message"].as_str().unwrap_or_default()
    }

    pub fn detail(&self, name: &str) -> &str {
        self.json["error"]["details"][name].as_str().unwrap_or_default()
    }
}
