//! The way in and out, around a router of small handlers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use admission::captured_log::CapturedLog;
use admission::endpoint::{CHANGE, CREATE, EXECUTE, Open, READ, TERMINATE, WRITE};
use admission::error::{Condition, RefusalCode};
use admission::output_memory::OutputMemory;
use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use axum::response::Html;
use driver::fake::FakeDriver;
use engine::{Clock, Engine};
use futures_util::FutureExt;
use http_body_util::BodyExt;
use image::{Catalogue, Images};
use listen::{Answers, Fault};
use rules::{Capacity, Rates, TimeMs};
use serde_json::Value;
use service::idempotency::Idempotency;
use service::image_access::{ImageAccess, ImageSettings};
use service::origins::AllowedOrigins;
use store::{Batch, KeyRecord, MemoryStore, Store, Write};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::endpoint::{Call, Endpoint};
use crate::testing::{engine_settings, gate, key, key_record, put_key};

const BOX: &str = "/v1/sandboxes/sb_aaaaaaaa";
const RUN: &str = "/v1/sandboxes/sb_aaaaaaaa/execute";

struct Fixture {
    store: MemoryStore,
    service: Arc<Service>,
    guarded: Guarded,
    ran: Arc<AtomicUsize>,
    _dir: tempfile::TempDir,
}

async fn revoke(store: &MemoryStore, n: u8) {
    let revoke = Write::RevokeKey { id: format!("key_{n}"), at: TimeMs(2) };
    store.commit(Batch::new().with(revoke)).await.unwrap();
}

impl Fixture {
    /// With keys 1 to 4 that may do everything and key 5 that may read.
    async fn new(rates: Rates) -> Self {
        let store = MemoryStore::new();
        for n in 1..=4 {
            put_key(&store, n, "one", "read,execute,write").await.unwrap();
        }
        put_key(&store, 5, "two", "read").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let service = Arc::new(service(&store, rates, dir.path()).await);
        let ran = Arc::new(AtomicUsize::new(0));
        let guarded = Guarded { table: Arc::new(table(&ran)), service: Arc::clone(&service) };
        Self { store, service, guarded, ran, _dir: dir }
    }

    async fn ask(&self, request: Request<Body>) -> Answer {
        Answer::of(self.guarded.clone().pass(request).await).await
    }

    async fn get(&self, path: &str, n: u8) -> Answer {
        self.ask(with_key("GET", path, n)).await
    }

    async fn post(&self, path: &str, n: u8) -> Answer {
        self.ask(with_key("POST", path, n)).await
    }
}

async fn service(store: &MemoryStore, rates: Rates, dir: &std::path::Path) -> Service {
    let capacity = Capacity { cpu: 8, memory_mb: 8192, disk_mb: 81_920 };
    let settings = engine_settings(capacity, 4, dir);
    let (kept, output): (Arc<dyn Store>, _) = (Arc::new(store.clone()), Arc::<OutputMemory>::default());
    let driver = Arc::new(FakeDriver::new());
    let parts = engine::Parts {
        driver,
        store: Arc::clone(&kept),
        network: Arc::new(net::NoNetwork),
        refusals: None,
        find_image: Arc::new(|_: &str| None),
        clock: Clock::runtime(TimeMs(1_700_000_000_000)),
        copies: None,
    };
    let (engine, _) = Engine::open(parts, settings).await.unwrap();
    let builder = builder::BuilderSettings {
        dir: dir.join("builds"),
        concurrent: 1,
        max_context_bytes: 1 << 20,
        retention_ms: 0,
        log_bytes: 0,
    };
    let builder = builder::Builder::open(engine.clone(), Arc::clone(&kept), builder).await.unwrap();
    let gate = gate(store, rates, Arc::clone(&output)).await.unwrap();
    Service {
        engine,
        builder,
        images: Images::open(dir, Catalogue::default_set(), image::Options::default()).unwrap(),
        gate: Arc::new(gate),
        idempotency: Idempotency::new(Arc::clone(&kept), Arc::clone(&output)),
        ports: service::ports::Ports::passing(),
        store: kept,
        allowed_origins: AllowedOrigins::parse(&["https://app.example.com".to_owned()]).unwrap(),
        image_access: ImageAccess::open(dir, ImageSettings::default()),
        config_rules: Default::default(),
        isolation: Default::default(),
        limits: crate::routes::limits_of(crate::testing::fixed_limits(), &Default::default()),
        has_network: true,
        execute_rules: Default::default(),
        mcp: None,
        max_output_bytes: 1024,
        pull_timeout: Duration::from_secs(1),
        stopping: CancellationToken::new(),
    }
}

/// Every error that a test meets is one that its endpoint declares.
pub fn assert_documented(endpoint: &Endpoint, response: &Response<Body>) {
    let Some(error) = response.extensions().get::<ApiError>() else { return };
    let is_documented = crate::openapi::documents(endpoint, response.status(), error.code);
    assert!(is_documented, "{} {} does not declare {}", endpoint.method, endpoint.path, error.code);
}

/// Small endpoints: each answers in one way.
fn table(ran: &Arc<AtomicUsize>) -> Table {
    let counted = || {
        let ran = Arc::clone(ran);
        move |_| {
            ran.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok(([(header::CONTENT_TYPE, "application/json")], "{}").into_response()))
        }
    };
    let status = |status: StatusCode| move |_| std::future::ready(Ok(status.into_response()));
    let fail = |error: ApiError| move |_| std::future::ready(Err(error.clone()));
    let gone = ApiError::new(api::ErrorCode::SandboxNotFound, "gone").with_detail("sandboxId", "sb_x");
    let full =
        ApiError::refused(RefusalCode::ResourceExhausted, "the host is full", Condition::HostResources, 7);
    let who = |call: Call| {
        let text = format!("{} {} {}", call.caller.account, call.caller.key_id, call.request_id.0);
        std::future::ready(Ok(text.into_response()))
    };
    let blow_up = |_| async {
        if true {
            panic!("a secret inside");
        }
        Ok(StatusCode::OK.into_response())
    };
    let endpoints = vec![
        Endpoint::get("/v1/health", Open).handler(|_| async { Ok(StatusCode::OK.into_response()) }),
        Endpoint::get("/docs", Open).handler(|_| async { Ok(Html("<p>").into_response()) }),
        Endpoint::get("/v1/sandboxes", READ).handler(counted()),
        Endpoint::post("/v1/sandboxes", CREATE).handler(counted()),
        Endpoint::get("/v1/sandboxes/{id}", READ).handler(counted()),
        Endpoint::delete("/v1/sandboxes/{id}", TERMINATE).handler(fail(gone)),
        Endpoint::put("/v1/sandboxes/{id}/files", CHANGE).handler(counted()),
        Endpoint::post("/v1/sandboxes/{id}/execute", EXECUTE).handler(counted()),
        Endpoint::get("/who", READ).handler(who),
        Endpoint::get("/panic", READ).handler(blow_up),
        Endpoint::post("/json", WRITE).handler(status(StatusCode::UNSUPPORTED_MEDIA_TYPE)),
        Endpoint::get("/long", READ).handler(status(StatusCode::PAYLOAD_TOO_LARGE)),
        Endpoint::get("/full", READ).handler(fail(full)),
        Endpoint::get("/unexplained", READ).handler(status(StatusCode::SERVICE_UNAVAILABLE)),
        Endpoint::get("/broken", READ).handler(fail(ApiError::internal("a secret inside"))),
        Endpoint::get("/never", READ).handler(|_| std::future::pending()),
    ];
    Table::new(endpoints).unwrap()
}

fn bare(method: &str, path: &str) -> Request<Body> {
    Request::builder().method(method).uri(path).body(Body::empty()).unwrap()
}

fn with_authorization(method: &str, path: &str, value: &str) -> Request<Body> {
    let mut request = bare(method, path);
    request.headers_mut().insert(header::AUTHORIZATION, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    request
}

fn with_key(method: &str, path: &str, n: u8) -> Request<Body> {
    with_authorization(method, path, &format!("Bearer {}", key(n).as_str()))
}

/// An answer in which what every answer must have was found.
struct Answer {
    status: u16,
    headers: axum::http::HeaderMap,
    body: String,
}

impl Answer {
    async fn of(response: Response<Body>) -> Self {
        let (head, body) = response.into_parts();
        let body = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        let answer = Self { status: head.status.as_u16(), headers: head.headers, body };
        let id = answer.header("x-request-id");
        assert!(rules::well_formed_request_id(id.as_bytes()).is_some(), "{id}");
        let limit: u32 = answer.header("x-ratelimit-limit").parse().unwrap();
        let remaining: u32 = answer.header("x-ratelimit-remaining").parse().unwrap();
        let reset: u64 = answer.header("x-ratelimit-reset").parse().unwrap();
        assert!(remaining <= limit && reset > 1_700_000_000, "{:?}", answer.headers);
        if answer.status >= 400 {
            assert_eq!(answer.header("content-type"), "application/json; charset=utf-8");
            let error = answer.error();
            assert_eq!(error["requestId"], id);
            assert!(
                error["details"].is_object() && !error["message"].as_str().unwrap().is_empty(),
                "{error}"
            );
            for name in ["code", "message", "details", "requestId"] {
                assert!(error.get(name).is_some(), "{name}");
            }
            if let Some(length) = answer.headers.get("content-length") {
                assert_eq!(length.to_str().unwrap(), answer.body.len().to_string());
            }
        } else {
            assert!(answer.headers.contains_key("content-type"));
        }
        answer
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", self.headers));
        value.to_str().unwrap()
    }

    fn error(&self) -> Value {
        serde_json::from_str::<Value>(&self.body).unwrap()["error"].clone()
    }

    fn summary(&self) -> (u16, String) {
        (self.status, self.error()["code"].as_str().unwrap().to_owned())
    }
}

fn summary(status: u16, code: &str) -> (u16, String) {
    (status, code.to_owned())
}

#[tokio::test]
async fn an_answer_of_any_kind_is_complete() {
    let fixture = Fixture::new(Rates::default()).await;
    let ok = fixture.get("/v1/sandboxes", 1).await;
    assert_eq!((ok.status, ok.header("content-type")), (200, "application/json; charset=utf-8"));
    assert_eq!((ok.header("x-ratelimit-limit"), ok.header("x-ratelimit-remaining")), ("300", "299"));
    let page = fixture.ask(bare("GET", "/docs")).await;
    assert!(page.header("content-type").starts_with("text/html"));
    let gone = fixture.ask(with_key("DELETE", BOX, 1)).await;
    assert_eq!(gone.summary(), summary(404, "SANDBOX_NOT_FOUND"));
    assert_eq!(gone.error()["details"]["sandboxId"], "sb_x");
    assert_eq!(gone.header("x-ratelimit-limit"), "60");
    for (path, method, status, code) in [
        ("/nowhere", "GET", 404, "NOT_FOUND"),
        ("/json", "POST", 400, "INVALID_REQUEST"),
        ("/long", "GET", 413, "INVALID_REQUEST"),
        ("/full", "GET", 503, "RESOURCE_EXHAUSTED"),
        // A client could not know when to try again.
        ("/unexplained", "GET", 500, "INTERNAL_ERROR"),
        ("/broken", "GET", 500, "INTERNAL_ERROR"),
        ("/panic", "GET", 500, "INTERNAL_ERROR"),
        (BOX, "PUT", 405, "METHOD_NOT_ALLOWED"),
    ] {
        let answer = fixture.ask(with_key(method, path, 1)).await;
        assert_eq!(answer.summary(), summary(status, code), "{method} {path}");
        assert!(!answer.body.contains("secret"), "{}", answer.body);
        match status {
            405 => assert_eq!(answer.header("allow"), "GET,HEAD,DELETE"),
            503 => assert_eq!(answer.header("retry-after"), "7"),
            _ => assert!(!answer.headers.contains_key("retry-after")),
        }
    }
}

fn from_page(method: &str, path: &str, origin: &'static str) -> Request<Body> {
    let mut request = with_key(method, path, 1);
    request.headers_mut().insert(header::ORIGIN, HeaderValue::from_static(origin));
    request
}

#[tokio::test]
async fn only_allowed_pages_may_read_responses() {
    const PAGE: &str = "https://app.example.com";
    let fixture = Fixture::new(Rates::default()).await;
    for path in ["/v1/sandboxes", "/nowhere", "/panic"] {
        let answer = fixture.ask(from_page("GET", path, PAGE)).await;
        assert_eq!((answer.header("access-control-allow-origin"), answer.header("vary")), (PAGE, "Origin"));
        let other = fixture.ask(from_page("GET", path, "https://evil.example.com")).await;
        assert!(!other.headers.contains_key("access-control-allow-origin"));
    }
    let ran = fixture.ran.load(Ordering::SeqCst);
    // A preflight request has no key.
    let preflight = |origin| {
        let mut request = from_page("OPTIONS", "/v1/sandboxes", origin);
        request.headers_mut().remove(header::AUTHORIZATION);
        for (name, value) in [
            (header::ACCESS_CONTROL_REQUEST_METHOD, "POST"),
            (header::ACCESS_CONTROL_REQUEST_HEADERS, "authorization,idempotency-key"),
        ] {
            request.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        request
    };
    let allowed = fixture.guarded.clone().pass(preflight(PAGE)).await;
    let header = |name: &str| allowed.headers()[name].to_str().unwrap();
    assert_eq!(allowed.status(), StatusCode::NO_CONTENT);
    assert_eq!(header("access-control-allow-origin"), PAGE);
    assert_eq!(header("access-control-allow-headers"), "authorization,idempotency-key");
    assert!(header("access-control-allow-methods").contains("PATCH"));
    assert_eq!(fixture.ask(preflight("https://evil.example.com")).await.status, 401);
    assert_eq!(fixture.ran.load(Ordering::SeqCst), ran);
}

#[tokio::test]
async fn head_gets_every_header_and_no_body() {
    let fixture = Fixture::new(Rates::default()).await;
    for (path, n, status) in [
        ("/nowhere", 9, 401),
        ("/nowhere", 1, 404),
        ("/panic", 1, 500),
        ("/who", 1, 200),
        ("/v1/sandboxes", 1, 200),
    ] {
        let get = fixture.guarded.clone().pass(with_key("GET", path, n)).await;
        let head = fixture.guarded.clone().pass(with_key("HEAD", path, n)).await;
        assert_eq!((get.status().as_u16(), head.status().as_u16()), (status, status), "{path}");
        let sent = get.into_body().collect().await.unwrap().to_bytes().len();
        assert_eq!(head.headers()["content-length"].to_str().unwrap(), sent.to_string(), "{path}");
        for name in ["x-request-id", "x-ratelimit-limit", "content-type"] {
            assert!(head.headers().contains_key(name), "{path} {name}");
        }
        assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty());
    }
}

#[tokio::test]
async fn a_panic_leaves_the_service_as_it_was() {
    let fixture = Fixture::new(Rates::default()).await;
    for _ in 0..3 {
        assert_eq!(fixture.get("/panic", 1).await.status, 500);
    }
    assert_eq!(fixture.get("/v1/sandboxes", 1).await.header("x-ratelimit-remaining"), "296");
}

#[tokio::test]
async fn a_clients_own_id_comes_back_in_header_body_and_handler() {
    let fixture = Fixture::new(Rates::default()).await;
    let ask = async |path: &str, id: &str| {
        let mut request = with_key("GET", path, 1);
        request.headers_mut().insert("x-request-id", HeaderValue::from_bytes(id.as_bytes()).unwrap());
        fixture.ask(request).await
    };
    let who = ask("/who", "my.own:id-1").await;
    assert_eq!((who.header("x-request-id"), who.body.as_str()), ("my.own:id-1", "one key_1 my.own:id-1"));
    assert_eq!(ask("/nowhere", "my.own:id-2").await.header("x-request-id"), "my.own:id-2");
    assert!(ask("/nowhere", "a b").await.header("x-request-id").starts_with("req_"));
    let (a, b) = (fixture.get("/who", 1).await, fixture.get("/who", 1).await);
    assert_ne!(a.header("x-request-id"), b.header("x-request-id"));
}

#[tokio::test]
async fn without_a_key_nothing_is_revealed() {
    let fixture = Fixture::new(Rates::default()).await;
    let good = key(1).as_str().to_owned();
    for value in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        good.clone(),
        format!("Basic {good}"),
        format!("Bearer{good}"),
        format!("Bearer {good}x"),
        format!("Bearer {}", key(9).as_str()),
        format!("Bearer {good} {good}"),
        "Bearer ü".to_owned(),
    ] {
        for (method, path) in
            [("GET", BOX), ("GET", "/nowhere"), ("PUT", BOX), ("POST", RUN), ("PATCH", "/../x")]
        {
            let answer = fixture.ask(with_authorization(method, path, &value)).await;
            assert_eq!(answer.summary(), summary(401, "UNAUTHORIZED"), "{value} {method} {path}");
            assert_eq!(answer.header("www-authenticate"), "Bearer");
            assert!(!answer.body.contains("sbk_"));
        }
    }
    assert_eq!(fixture.ask(bare("GET", "/nowhere")).await.status, 401);
    let mut twice = with_key("GET", BOX, 1);
    twice.headers_mut().append(header::AUTHORIZATION, HeaderValue::from_static("Bearer x"));
    assert_eq!(fixture.ask(twice).await.status, 401);
    assert_eq!(fixture.ask(bare("GET", "/v1/health")).await.status, 200);
    assert_eq!(fixture.ask(with_authorization("GET", "/v1/health", "junk")).await.status, 200);
    for scheme in ["bearer", "BEARER", "BeArEr", "Bearer "] {
        let answer = fixture.ask(with_authorization("GET", BOX, &format!("{scheme} {good}"))).await;
        assert_eq!(answer.status, 200, "{scheme}");
    }
    assert_eq!(fixture.ran.load(Ordering::SeqCst), 4);
}

#[tokio::test]
async fn a_scope_allows_itself_alone() {
    let fixture = Fixture::new(Rates::default()).await;
    assert_eq!(fixture.get(BOX, 5).await.status, 200);
    for (method, path) in [("POST", "/v1/sandboxes"), ("POST", RUN), ("DELETE", BOX)] {
        let answer = fixture.ask(with_key(method, path, 5)).await;
        assert_eq!(answer.summary(), summary(403, "FORBIDDEN"), "{method} {path}");
    }
    assert_eq!(fixture.ran.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_rate_limited_response_has_retry_after() {
    let fixture = Fixture::new(Rates { create: 2, write: 3, ..Rates::default() }).await;
    for remaining in ["1", "0"] {
        let answer = fixture.post("/v1/sandboxes", 1).await;
        assert_eq!((answer.status, answer.header("x-ratelimit-limit")), (200, "2"));
        assert_eq!(answer.header("x-ratelimit-remaining"), remaining);
    }
    let log = CapturedLog::default();
    let logging = log.begin();
    let refused = fixture.post("/v1/sandboxes", 1).await;
    drop(logging);
    assert_eq!(refused.summary(), summary(429, "RATE_LIMITED"));
    let line = log.requests().pop().unwrap();
    assert_eq!(
        (&line["fields"]["limit"], &line["fields"]["limit_value"]),
        (&"limits.create_per_minute".into(), &2.into()),
        "{line}"
    );
    let wait: u64 = refused.header("retry-after").parse().unwrap();
    assert!((59..=60).contains(&wait), "{wait}");
    assert_eq!((refused.header("x-ratelimit-limit"), refused.header("x-ratelimit-remaining")), ("2", "0"));
    assert_eq!(fixture.ran.load(Ordering::SeqCst), 2);
    let delete = fixture.ask(with_key("DELETE", BOX, 1)).await;
    assert_eq!(delete.header("x-ratelimit-remaining"), "0", "the refused one counted against no limit");
    assert_eq!(fixture.post("/v1/sandboxes", 2).await.status, 200, "another key has its own");
    assert_eq!(fixture.ask(bare("GET", "/v1/health")).await.header("x-ratelimit-remaining"), "300");
}

#[tokio::test]
async fn a_sandbox_can_be_terminated_after_any_number_of_other_requests() {
    let fixture = Fixture::new(Rates { write: 3, operate: 5, ..Rates::default() }).await;
    let files = format!("{BOX}/files");
    for _ in 0..5 {
        assert_eq!(fixture.ask(with_key("PUT", &files, 1)).await.header("x-ratelimit-limit"), "5");
    }
    let refused = fixture.ask(with_key("PUT", &files, 1)).await;
    assert_eq!(refused.summary(), summary(429, "RATE_LIMITED"));
    assert_eq!(refused.error()["details"]["key"], "limits.operate_per_minute");
    while fixture.post("/json", 1).await.status == 400 {}
    assert_eq!(fixture.post("/json", 1).await.summary(), summary(429, "RATE_LIMITED"));
    for _ in 0..3 {
        assert_eq!(
            fixture.ask(with_key("DELETE", BOX, 1)).await.summary(),
            summary(404, "SANDBOX_NOT_FOUND")
        );
    }
    let refused = fixture.ask(with_key("DELETE", BOX, 1)).await;
    assert_eq!(refused.summary(), summary(429, "RATE_LIMITED"));
    assert_eq!(refused.error()["details"]["limit"], "terminations per minute");
}

/// A sandbox that pauses itself after a minute.
async fn sandbox(engine: &Engine) -> api::SandboxId {
    let resources = api::Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };
    let config = api::SandboxConfig {
        image: "test:1".to_owned(),
        resources,
        env: Default::default(),
        workdir: "/workspace".to_owned(),
        timeout_ms: 86_400_000,
        idle_timeout_ms: 60_000,
        on_timeout: api::OnTimeout::Terminate,
        processes_at_timeout: api::ProcessesAtTimeout::Kept,
        auto_resume: true,
        metadata: [(api::NAME_KEY.to_owned(), "box".to_owned())].into(),
        network: Default::default(),
        isolation: api::Isolation::Container,
        default_user: false,
        extensions: Default::default(),
    };
    let (name, digest) = (config.image.clone(), "sha256:1".to_owned());
    let template = engine::Template::of_image(name, digest, Vec::new(), Vec::new());
    engine.create("one", config, template, None).await.unwrap().record.id.clone()
}

#[tokio::test]
async fn a_name_has_the_rate_limit_of_its_sandbox() {
    let fixture = Fixture::new(Rates { execute: 2, ..Rates::default() }).await;
    let engine = &fixture.service.engine;
    let id = sandbox(engine).await;
    let statuses = async |paths: &[&str]| {
        let mut statuses = Vec::new();
        for path in paths {
            statuses.push(
                fixture.ask(with_key("POST", &format!("/v1/sandboxes/{path}/execute"), 1)).await.status,
            );
        }
        statuses
    };
    assert_eq!(statuses(&["box", id.as_str(), "bo%78", "box"]).await, [200, 200, 429, 429]);
    // Unknown names count nowhere, as unknown texts always have.
    assert_eq!(statuses(&["other", "other", "other"]).await, [200, 200, 200]);
    engine.sandbox("one", &id).terminate("test").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn refused_requests_count_as_activity_unless_they_only_read() {
    let fixture = Fixture::new(Rates { execute: 1, read: 1, ..Rates::default() }).await;
    put_key(&fixture.store, 6, "one", "read").await.unwrap();
    fixture.service.gate.keyring.refresh(&fixture.store).await.unwrap();
    let engine = &fixture.service.engine;
    for (reads, refused) in [(false, 429), (false, 403), (true, 429)] {
        let id = sandbox(engine).await;
        let path = format!("/v1/sandboxes/{id}/execute");
        let (method, path, n) = match (reads, refused) {
            (true, _) => ("GET", &path[..path.len() - 8], 1),
            (false, 403) => ("POST", path.as_str(), 6),
            (false, _) => ("POST", path.as_str(), 1),
        };
        fixture.ask(with_key(method, path, n)).await;
        // The clock of the limits stands still meanwhile.
        tokio::time::sleep(Duration::from_secs(40)).await;
        assert_eq!(fixture.ask(with_key(method, path, n)).await.status, refused);
        tokio::time::sleep(Duration::from_secs(40)).await;
        let state = engine.sandbox("one", &id).status().await.unwrap().state();
        let awake = if reads { api::SandboxState::Paused } else { api::SandboxState::Running };
        assert_eq!(state, awake, "{method} {refused}");
        engine.sandbox("one", &id).terminate("test").await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn four_concurrent_keys_get_exactly_their_limits() {
    let fixture = Arc::new(Fixture::new(Rates::default()).await);
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let fixture = Arc::clone(&fixture);
            tokio::spawn(async move {
                let n = 1 + task % 4;
                let (mut read, mut ran) = (0, 0);
                for round in 0..200 {
                    read += usize::from(fixture.get(BOX, n).await.status == 200);
                    // Another spelling of the id is not another sandbox.
                    let path = if round % 2 == 0 { RUN } else { "/v1/sandboxes/sb%5Faaaaaaaa/execute" };
                    ran += usize::from(fixture.post(path, n).await.status == 200);
                }
                (n, read, ran)
            })
        })
        .collect();
    let (mut read, mut ran) = ([0; 5], 0);
    for task in tasks {
        let (n, of_key, of_box) = task.await.unwrap();
        read[usize::from(n)] += of_key;
        ran += of_box;
    }
    assert_eq!((read, ran), ([0, 300, 300, 300, 300], 100));
}

#[tokio::test]
async fn new_and_revoked_keys_take_effect_within_a_second() {
    let fixture = Fixture::new(Rates::default()).await;
    let stop = CancellationToken::new();
    let maintenance = admission::maintain(Arc::clone(&fixture.service.gate), stop.clone());
    let until = async |status: u16| {
        let since = Instant::now();
        while fixture.get(BOX, 7).await.status != status {
            assert!(since.elapsed() < Duration::from_secs(1), "still not {status}");
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(fixture.get(BOX, 7).await.status, 401);
    put_key(&fixture.store, 7, "three", "read").await.unwrap();
    until(200).await;
    revoke(&fixture.store, 7).await;
    // Past its limit a key that is still valid gets 429, and then as much as before 401.
    until(401).await;
    stop.cancel();
    maintenance.await.unwrap();
}

#[tokio::test]
async fn a_new_key_works_immediately() {
    // No maintenance task runs.
    let fixture = Fixture::new(Rates::default()).await;
    assert_eq!(fixture.get(BOX, 7).await.status, 401);
    put_key(&fixture.store, 7, "three", "read").await.unwrap();
    assert_eq!(fixture.get(BOX, 7).await.status, 200);
    // Unknown keys share one query, so that many of them cost the store no more than one.
    let since = Instant::now();
    let strangers = (100..200).map(|n| fixture.get(BOX, n));
    let answers = futures_util::future::join_all(strangers).await;
    assert!(answers.iter().all(|answer| answer.status == 401));
    assert!(since.elapsed() < Duration::from_millis(500), "they waited for each other");
}

#[tokio::test]
async fn a_request_is_one_line_without_a_secret() {
    let fixture = Fixture::new(Rates::default()).await;
    let log = CapturedLog::default();
    let _logging = log.begin();
    let mut request = with_key("POST", &format!("{RUN}?secret=query"), 1);
    *request.body_mut() = Body::from("{\"command\":\"secret body\"}");
    request.headers_mut().insert("x-api", HeaderValue::from_static("secret header"));
    request.headers_mut().insert("x-forwarded-for", HeaderValue::from_static("6.6.6.6"));
    request.extensions_mut().insert(listen::PeerAddr("10.0.0.1:4000".parse().unwrap()));
    let answer = fixture.ask(request).await;
    fixture.ask(bare("GET", "/nowhere")).await;
    let broken = fixture.get("/panic", 2).await;
    let lines = log.requests();
    assert_eq!(lines.len(), 3, "{lines:?}");
    let fields = &lines[0]["fields"];
    assert_eq!(fields["request_id"], answer.header("x-request-id"));
    for (name, value) in [
        ("method", "POST"),
        ("route", "/v1/sandboxes/{id}/execute"),
        ("account", "one"),
        ("key_id", "key_1"),
        ("client", "10.0.0.1"),
    ] {
        assert_eq!(fields[name], value, "{name}");
    }
    assert_eq!(fields["status"], 200);
    assert!(fields["ms"].is_f64(), "{fields}");
    assert_eq!((&lines[1]["fields"]["status"], &lines[1]["fields"]["route"]), (&401.into(), &"none".into()));
    assert_eq!((&lines[2]["level"], &lines[2]["fields"]["status"]), (&"ERROR".into(), &500.into()));
    assert_eq!(lines[2]["fields"]["request_id"], broken.header("x-request-id"));
    assert_eq!(lines[2]["fields"]["cause"], "a handler panicked: a secret inside");
    let all = log.text();
    for secret in ["secret=query", "secret body", "secret header", key(1).as_str(), &key(1).as_str()[4..20]] {
        assert!(!all.contains(secret), "{secret} is in:\n{all}");
    }
}

#[tokio::test]
async fn a_refusal_of_a_key_that_ended_names_the_key_in_the_log() {
    let fixture = Fixture::new(Rates::default()).await;
    revoke(&fixture.store, 1).await;
    let expired = KeyRecord { expires_at: Some(TimeMs(2)), ..key_record(7, "three", "read") };
    fixture.store.commit(Batch::new().with(Write::PutKey(Box::new(expired)))).await.unwrap();
    fixture.service.gate.keyring.refresh(&fixture.store).await.unwrap();
    let log = CapturedLog::default();
    let _logging = log.begin();
    for (n, key_id, reason) in [
        (1, Value::from("key_1"), Value::from("revoked")),
        (7, Value::from("key_7"), Value::from("expired")),
        (9, Value::Null, Value::Null),
    ] {
        assert_eq!(fixture.get(BOX, n).await.status, 401);
        let line = log.requests().pop().unwrap();
        assert_eq!((&line["fields"]["key_id"], &line["fields"]["reason"]), (&key_id, &reason), "{line}");
        assert!(!line.to_string().contains(&key(n).as_str()[4..20]));
    }
    assert_eq!(fixture.get(BOX, 2).await.status, 200);
}

#[tokio::test]
async fn disconnects_are_logged() {
    let fixture = Fixture::new(Rates::default()).await;
    let log = CapturedLog::default();
    let _logging = log.begin();
    let mut asking = Box::pin(fixture.ask(with_key("GET", "/never", 1)));
    assert!(asking.as_mut().now_or_never().is_none());
    assert!(log.requests().is_empty());
    drop(asking);
    let lines = log.requests();
    assert_eq!((lines.len(), &lines[0]["fields"]["status"]), (1, &499.into()));
    assert_eq!(lines[0]["fields"]["account"], "one");
}

#[tokio::test]
async fn a_request_reads_nothing_from_the_store() {
    let fixture = Fixture::new(Rates::default()).await;
    fixture.store.close().await;
    assert_eq!(fixture.get(BOX, 1).await.status, 200);
    assert_eq!(fixture.post(RUN, 1).await.status, 200);
    assert_eq!(fixture.get(BOX, 9).await.status, 401);
}

#[tokio::test]
async fn unrouted_responses_have_the_common_form() {
    let fixture = Fixture::new(Rates::default()).await;
    let unrouted = Unrouted(Arc::clone(&fixture.service));
    for (fault, status) in [
        (Fault::Malformed("no version"), 400),
        (Fault::TargetTooLong { limit: 8 }, 414),
        (Fault::TooManyHeaders { limit: 100 }, 431),
        (Fault::HeadTooSlow { limit_ms: 10 }, 408),
    ] {
        let answer = Answer::of(unrouted.fault(fault, Some(&HeaderValue::from_static("own-1")))).await;
        assert_eq!(answer.summary(), summary(status, "INVALID_REQUEST"));
        assert_eq!((answer.header("x-request-id"), answer.header("x-ratelimit-limit")), ("own-1", "300"));
        assert_eq!(answer.error()["message"], fault.to_string());
    }
    let bad = Answer::of(unrouted.fault(Fault::Malformed("x"), Some(&HeaderValue::from_static("a b")))).await;
    assert!(bad.header("x-request-id").starts_with("req_"));
    let moved = Answer::of(unrouted.moved("https://here:8443/v1/health?a=b", None)).await;
    assert_eq!((moved.status, moved.header("content-type")), (301, "application/json; charset=utf-8"));
}
