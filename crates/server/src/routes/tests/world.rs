//! A service to ask, and its answers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use driver::fake::FakeDriver;
use engine::{Clock, Engine, EngineSettings, Template};
use http_body_util::BodyExt;
use image::{Catalogue, Images};
use rules::{Capacity, KeyText, Rates, TimeMs};
use serde_json::Value;
use store::{Batch, KeyRecord, MemoryStore, Store, Write};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::keyring::{Keyring, hash_of};
use crate::layers::Guarded;
use crate::limiter::Limiter;
use crate::metrics::Metrics;
use crate::once::Once;
use crate::routes;
use crate::service::Service;

pub const IMAGE: &str = "test:1";
/// Answers a connection with nothing, ever.
pub const HANGING: &str = "hanging:1";
/// Sandboxes of the default size that fit.
pub const FIT: usize = 12;

pub struct World {
    pub driver: FakeDriver,
    pub service: Arc<Service>,
    pub guarded: Guarded,
    dir: TempDir,
    registry: std::net::TcpListener,
}

fn key(n: u8) -> KeyText {
    KeyText::format([n; 32])
}

/// `Authorization` of account `one`, which may do everything; of account `two`, likewise.
pub fn bearer(n: u8) -> String {
    format!("Bearer {}", key(n).as_str())
}

async fn put_key(store: &MemoryStore, n: u8, account: &str) {
    let record = KeyRecord {
        id: format!("key_{n}"),
        hash: hash_of(&key(n)),
        account: account.to_owned(),
        scopes: "read,execute,write".to_owned(),
        name: None,
        prefix_hint: key(n).hint().to_owned(),
        created_at: TimeMs(1),
        revoked_at: None,
    };
    store.commit(Batch::new().with(Write::PutKey(Box::new(record)))).await.unwrap();
}

async fn images(dir: &TempDir, registry: &std::net::TcpListener) -> Images {
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("bin")).unwrap();
    let mut catalogue = Catalogue::default();
    catalogue.set(IMAGE, &[format!("rootfs:{}", root.display())]).unwrap();
    catalogue.set("custom", &[""; 0]).unwrap();
    catalogue.set("gone:1", &["rootfs:/nonexistent/root"]).unwrap();
    let registry = registry.local_addr().unwrap();
    catalogue.set(HANGING, &[format!("{registry}/hanging:1")]).unwrap();
    let images = Images::open(&dir.path().join("images"), catalogue, image::Options::default()).unwrap();
    images.ensure(IMAGE, Arc::new(|_| {})).await.unwrap();
    images
}

impl World {
    pub async fn new() -> Self {
        Self::made(Clock::System, false).await
    }

    /// Where a create may name any image of a registry.
    pub async fn with_any_image() -> Self {
        Self::made(Clock::System, true).await
    }

    pub async fn with_clock(clock: Clock) -> Self {
        Self::made(clock, false).await
    }

    async fn made(clock: Clock, allow_any_image: bool) -> Self {
        let (store, driver) = (MemoryStore::new(), FakeDriver::new());
        put_key(&store, 1, "one").await;
        put_key(&store, 2, "two").await;
        let dir = tempfile::tempdir().unwrap();
        let registry = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let images = images(&dir, &registry).await;
        let settings = EngineSettings {
            capacity: Capacity { cpu: 1000, memory_mb: 4096 * FIT as u64, disk_mb: 1_000_000 },
            pool: Default::default(),
            concurrent_executions: 3,
            execution_queue: 0,
            paused_retention_ms: 0,
            terminated_retention_ms: 0,
            slots: 100,
            prices: Default::default(),
            detached: engine::DetachedSettings::in_dir(dir.path().join("executions")),
        };
        let kept: Arc<dyn Store> = Arc::new(store.clone());
        let template =
            Template { name: IMAGE.to_owned(), digest: "sha256:1".to_owned(), layers: vec![], env: vec![] };
        let find = Arc::new(move |name: &str| (name == IMAGE).then(|| template.clone()));
        let parts = engine::Parts {
            driver: Arc::new(driver.clone()),
            store: Arc::clone(&kept),
            network: Arc::new(net::NoNetwork),
            refusals: None,
            find_image: find,
            clock,
        };
        let (engine, _) = Engine::open(parts, settings).await.unwrap();
        let service = Arc::new(Service {
            engine,
            images,
            allow_any_image,
            keyring: Keyring::load(&store).await.unwrap(),
            limiter: Limiter::new(Rates { read: 0, write: 0, create: 0, execute: 0 }),
            once: Once::new(Arc::clone(&kept)),
            room: Default::default(),
            ports: crate::ports::Ports::passing(&crate::config::Config::default()),
            store: kept,
            metrics: Metrics::new(),
            trusted_proxies: Default::default(),
            config_rules: Default::default(),
            execute_rules: Default::default(),
            max_output_bytes: 1024,
            pull_patience: Duration::from_millis(200),
            stopping: CancellationToken::new(),
        });
        let guarded = routes::guarded(Arc::clone(&service));
        Self { driver, service, guarded, dir, registry }
    }

    /// The same images as another process of this host has them.
    pub fn images_beside(&self) -> Images {
        let root = self.dir.path().join("images");
        Images::open(&root, Catalogue::default(), image::Options::default()).unwrap()
    }

    /// An image of the registry that answers nothing.
    pub fn hanging_reference(&self, name: &str) -> String {
        format!("{}/{name}", self.registry.local_addr().unwrap())
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
        let made = self.post("/v1/sandboxes", serde_json::json!({ "image": IMAGE })).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text);
        made.json["id"].as_str().unwrap().to_owned()
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

/// An answer, of which every one has what every one must have.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
    /// Null where the body is no JSON.
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
            let own = [408, 413].contains(&self.status.as_u16());
            assert!(own || code.status() == self.status.as_u16(), "{self:?}");
        }
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
