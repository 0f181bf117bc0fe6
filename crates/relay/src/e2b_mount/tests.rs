mod bounds;
mod doors;
mod logs;
mod templates;

use std::time::Duration;

use admission::captured_log::CapturedLog;
use axum::body::Body;
use axum::http::Method;
use driver::fake::{DriverOp, Fault};
use engine::Clock;
use http_body_util::BodyExt;
use listen::Application;
use native::testing::{Harness, Settings, key};
use rules::{Capacity, TimeMs};
use serde_json::{Value, json};
use store::{Batch, Write};

use super::*;
use crate::Relay;

fn request(host: &str, headers: &[(&str, &str)]) -> Request {
    let request = Request::builder().uri("/files").header("host", host);
    let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
    request.body(Body::empty()).unwrap()
}

#[test]
fn headers_name_a_sandbox_only_on_local_hosts() {
    for (host, local) in [
        ("localhost:8443", true),
        ("127.0.0.1", true),
        ("[::1]:8443", true),
        ("localhost.evil.example", false),
        ("api.example.com", false),
    ] {
        assert_eq!(is_local(&request(host, &[])), local, "{host}");
    }
}

#[test]
fn headers_are_checked() {
    let read = |headers: &[(&str, &str)]| by_headers(request("localhost", headers).headers());
    let id: SandboxId = "sb_abcdefgh23".parse().unwrap();
    for form in ["sbabcdefgh23", "sb-abcdefgh23", "sb_abcdefgh23"] {
        assert!(matches!(read(&[(SANDBOX_ID, form)]), Target::Envd(found) if found == id), "{form}");
    }
    let other = read(&[(SANDBOX_ID, "sbabcdefgh23"), (SANDBOX_PORT, "49999")]);
    assert!(matches!(other, Target::Port(found, 49999) if found == id));
    for wrong in [
        &[(SANDBOX_ID, "../x")][..],
        &[(SANDBOX_PORT, "80")],
        &[(SANDBOX_ID, "sbabcdefgh23"), (SANDBOX_PORT, "0")],
        &[(SANDBOX_ID, "sbabcdefgh23"), (SANDBOX_PORT, "70000")],
    ] {
        assert!(matches!(read(wrong), Target::Refused(error) if error.status == 400));
    }
}

/// The API on a service.
fn e2b_of(service: &Arc<Service>) -> Arc<E2b> {
    let settings = e2b::Settings {
        templates: e2b::default_templates(),
        public_ports: true,
        domain: service.ports.public_domain(),
        scheme: service.ports.scheme(),
        isolation: Arc::clone(&service.isolation),
    };
    E2b::new(service, settings, &[7; 32]).unwrap()
}

/// A service with the API enabled, on the fake driver.
struct Fixture {
    harness: Harness,
    relay: Relay,
}

struct Got {
    status: u16,
    headers: HeaderMap,
    body: Value,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_| ()).await
    }

    async fn with(change: impl FnOnce(&mut Service)) -> Self {
        let settings = Settings {
            clock: Clock::System,
            allow_any_image: false,
            ready: &["ubuntu:24.04"],
            hanging: "busy",
            capacity: Capacity { cpu: 1000, memory_mb: 1_000_000, disk_mb: 10_000_000 },
            max_output_bytes: 1 << 20,
        };
        let harness = Harness::with(settings, change).await.unwrap();
        let e2b = Some(e2b_of(&harness.service));
        let relay = Relay { api: harness.guarded.clone(), e2b };
        Self { harness, relay }
    }

    async fn send(&self, host: &str, call: &str, key: &str, body: &str) -> Got {
        self.send_with(host, call, &[("x-api-key", key)], body).await
    }

    async fn send_with(&self, host: &str, call: &str, headers: &[(&str, &str)], body: &str) -> Got {
        let (method, path) = call.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(path).header("host", host);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        let response = self.relay.answer(request.body(Body::from(body.to_owned())).unwrap()).await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let content = response.into_body().collect().await.unwrap().to_bytes();
        let body = serde_json::from_slice(&content).unwrap_or(Value::Null);
        assert!(status < 400 || body["code"] == status && body["message"].is_string(), "{call}: {body}");
        Got { status, headers, body }
    }

    /// With a key that may do everything, as clients of E2B send it.
    async fn ask(&self, call: &str, body: Value) -> Got {
        let text = if body.is_null() { String::new() } else { body.to_string() };
        self.send("api.sandboxes.localhost:8443", call, &key(1).e2b_text(), &text).await
    }

    async fn create(&self, body: Value) -> String {
        let mut all = json!({ "templateID": "ubuntu:24.04" });
        for (name, value) in body.as_object().unwrap() {
            all[name] = value.clone();
        }
        let got = self.ask("POST /v2/sandboxes", all).await;
        assert_eq!(got.status, 201, "{}", got.body);
        got.body["sandboxID"].as_str().unwrap().to_owned()
    }
}

fn seconds_left(sandbox: &Value) -> f64 {
    let time = |name: &str| sandbox[name].as_str().unwrap().parse::<api::Timestamp>().unwrap().0 as f64;
    let now = admission::wall_clock::now().0 as f64;
    (time("endAt") - now) / 1000.0
}

#[tokio::test]
async fn a_sandbox_is_created_shown_and_killed() {
    let fixture = Fixture::new().await;
    let body = json!({ "templateID": "ubuntu:24.04", "timeout": 60, "metadata": {"a": "b"}, "mcp": null });
    let created = fixture.ask("POST /sandboxes", body).await;
    assert_eq!(created.status, 201);
    let id = created.body["sandboxID"].as_str().unwrap().to_owned();
    assert!(!id.contains('_') && id.starts_with("sb"), "{id}");
    assert_eq!(created.body["domain"], "sandboxes.localhost:8443");
    assert!(created.body["envdAccessToken"].is_string() && created.body["trafficAccessToken"].is_null());
    for form in [id.clone(), id.replacen("sb", "sb_", 1), id.replacen("sb", "sb-", 1)] {
        let got = fixture.ask(&format!("GET /sandboxes/{form}"), Value::Null).await;
        assert_eq!((got.status, &got.body["state"]), (200, &json!("running")));
        assert!((55.0..61.0).contains(&seconds_left(&got.body)), "{}", got.body);
        assert_eq!(got.body["lifecycle"], json!({ "autoResume": false, "onTimeout": "kill" }));
    }
    let other = fixture.send("localhost", &format!("GET /sandboxes/{id}"), key(2).as_str(), "").await;
    assert_eq!(other.status, 404, "another account");
    assert_eq!(fixture.ask(&format!("DELETE /sandboxes/{id}"), Value::Null).await.status, 204);
    assert_eq!(fixture.ask(&format!("DELETE /sandboxes/{id}"), Value::Null).await.status, 404);
    drop(fixture.harness);
}

#[tokio::test]
async fn a_create_with_a_key_is_executed_once() {
    let fixture = Fixture::new().await;
    let create = async |key: &str, name: &str, template: &str| {
        let headers = [("x-api-key", key), ("idempotency-key", name)];
        let body = json!({ "templateID": template }).to_string();
        fixture.send_with("api.sandboxes.localhost", "POST /sandboxes", &headers, &body).await
    };
    let (all, no_execute) = (key(1).e2b_text(), key(3));
    let (first, again) = tokio::join!(create(&all, "a", "ubuntu:24.04"), create(&all, "a", "ubuntu:24.04"));
    assert_eq!((first.status, &first.body), (201, &again.body));
    assert!(first.body["envdAccessToken"].is_string());
    let replayed = create(&all, "a", "ubuntu:24.04").await;
    assert_eq!(
        (&replayed.body, replayed.headers["idempotency-replayed"].as_bytes()),
        (&first.body, &b"true"[..])
    );
    assert_eq!(create(&all, "a", "nope").await.status, 400, "another body");
    for _ in 0..2 {
        assert_eq!(create(&all, "b", "nope").await.status, 404, "a recorded error has the form of this API");
    }
    let listed = fixture.ask("GET /v2/sandboxes", Value::Null).await;
    assert_eq!(listed.body.as_array().unwrap().len(), 1);
    let refused = create(no_execute.as_str(), "a", "ubuntu:24.04").await;
    assert_eq!(refused.body["envdAccessToken"], Value::Null, "no token of another key's response");
}

#[tokio::test]
async fn errors_have_the_form_that_clients_parse() {
    let fixture = Fixture::new().await;
    for (call, key, body, status) in [
        ("GET /v2/sandboxes", "", "", 401),
        ("GET /v2/sandboxes", "e2b_00", "", 401),
        ("POST /sandboxes", key(3).as_str(), r#"{"templateID": "ubuntu:24.04"}"#, 403),
        ("POST /sandboxes", key(1).as_str(), "{", 400),
        ("POST /sandboxes", key(1).as_str(), r#"{"templateID": "ubuntu:24.04", "timeout": -1}"#, 400),
        ("POST /sandboxes", key(1).as_str(), r#"{"templateID": "ubuntu:24.04", "iam": {}}"#, 400),
        ("POST /sandboxes", key(1).as_str(), r#"{"templateID": "nope"}"#, 404),
        ("POST /sandboxes", key(1).as_str(), " ".repeat(1 << 21).as_str(), 413),
        ("PATCH /sandboxes", key(1).as_str(), "", 405),
        ("POST /v2/templates", key(1).as_str(), "{}", 501),
        ("GET /nothing", key(1).as_str(), "", 404),
    ] {
        let got = fixture.send("api.sandboxes.localhost", call, key, body).await;
        assert_eq!(got.status, status, "{call} {}", got.body);
    }
    for host in ["49983-sbabcdefgh23.sandboxes.localhost", "3000-sbabcdefgh23.sandboxes.localhost"] {
        let got = fixture.send(host, "GET /", "", "").await;
        assert_eq!((got.status, &got.body["message"]), (502, &json!("The sandbox was not found")), "{host}");
    }
}

/// The options are read where they matter, so the sandbox can still be killed.
#[tokio::test]
async fn malformed_options_are_an_error_of_the_service() {
    let fixture = Fixture::new().await;
    let service = &fixture.harness.service;
    let good = SandboxId::from_host_name(&fixture.create(json!({})).await).unwrap();
    let record = service.engine.record(&good).unwrap();
    let mut config = record.config.clone();
    config.extensions.insert("e2b".to_owned(), json!({ "secure": "yes" }));
    let image = service::images::template(&service.images.get(&config.image).unwrap());
    let created = service.engine.create(&record.account, config, image, None).await.unwrap();
    let id = created.record.id.compact();
    let log = CapturedLog::default();
    let _capture = log.begin();
    let got = fixture.ask(&format!("GET /sandboxes/{id}"), Value::Null).await;
    assert_eq!(got.status, 500, "{}", got.body);
    assert!(log.text().contains("are malformed"), "{}", log.text());
    for host in [format!("49983-{id}.sandboxes.localhost"), format!("3000-{id}.sandboxes.localhost")] {
        assert_eq!(fixture.send(&host, "GET /", "", "").await.status, 500, "{host}");
    }
    let listed = fixture.ask("GET /v2/sandboxes", Value::Null).await;
    assert_eq!(listed.body.as_array().unwrap().len(), 1);
    assert_eq!(fixture.ask(&format!("DELETE /sandboxes/{id}"), Value::Null).await.status, 204);
}

#[tokio::test]
async fn a_signed_url_without_a_sandbox_says_what_it_lacks() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let call = "GET /files?path=%2Ftmp%2Fz&signature=v1_x";
    for (host, has_header) in [("127.0.0.1:8443", true), ("localhost", true), ("service.example", false)] {
        let got = fixture.send(host, call, "", "").await;
        let message = got.body["message"].as_str().unwrap();
        assert_eq!(got.status, 401, "{host}: {message}");
        assert!(
            message.contains("without E2B_SANDBOX_URL") && message.contains("49983-ID.DOMAIN"),
            "{message}"
        );
        assert_eq!(message.contains("E2b-Sandbox-Id: ID"), has_header, "{host}: {message}");
    }
    let named = fixture.send_with("localhost", call, &[(SANDBOX_ID, &id)], "").await;
    assert_eq!((named.status, &named.body["message"]), (401, &json!("invalid signature")));
}

/// The log line of a refused request has the code of the native API, and the metrics count the reason.
#[tokio::test]
async fn refusals_are_counted_and_logged_as_those_of_the_native_api() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let (api, envd) = ("api.sandboxes.localhost".to_owned(), format!("49983-{id}.sandboxes.localhost"));
    let unknown = key(9).e2b_text();
    let log = CapturedLog::default();
    let _capture = log.begin();
    for (host, call, key, code) in [
        (&api, "GET /v2/sandboxes", "", "UNAUTHORIZED"),
        (&api, "GET /v2/sandboxes", "e2b_00", "UNAUTHORIZED"),
        (&api, "GET /v2/sandboxes", unknown.as_str(), "UNAUTHORIZED"),
        (&envd, "POST /filesystem.Filesystem/ListDir", "", "UNAUTHORIZED"),
        (&api, "POST /sandboxes", key(3).as_str(), "FORBIDDEN"),
        (&api, "GET /nothing", key(1).as_str(), "NOT_FOUND"),
    ] {
        fixture.send(host, call, key, "{}").await;
        let line = log.requests().pop().unwrap();
        assert_eq!(line["fields"]["code"], code, "{call}: {line}");
    }
    let metrics = &fixture.harness.service.gate.metrics;
    assert_eq!((metrics.refusals("unauthorized"), metrics.refusals("forbidden")), (4, 1));
    assert!(!log.text().contains(&unknown));
    let revoke = Write::RevokeKey { id: "key_1".to_owned(), at: TimeMs(2) };
    fixture.harness.service.store.commit(Batch::new().with(revoke)).await.unwrap();
    fixture.harness.service.gate.keyring.refresh(fixture.harness.service.store.as_ref()).await.unwrap();
    fixture.send(&api, "GET /v2/sandboxes", &key(1).e2b_text(), "").await;
    let line = log.requests().pop().unwrap();
    let fields = &line["fields"];
    assert_eq!((&fields["key_id"], &fields["reason"]), (&json!("key_1"), &json!("revoked")), "{line}");
}

#[tokio::test]
async fn only_a_failure_of_the_service_is_an_error_in_the_log() {
    let fixture = Fixture::new().await;
    let log = CapturedLog::default();
    let _capture = log.begin();
    let id = fixture.create(json!({})).await;
    let line = log.requests().pop().unwrap();
    assert_eq!(line["fields"]["sandbox"].as_str().map(|id| id.replace('_', "")), Some(id), "{line}");
    fixture.harness.driver.fail_next(DriverOp::Start, Fault::Before);
    let failed = fixture.ask("POST /sandboxes", json!({ "templateID": "ubuntu:24.04" })).await;
    assert_eq!(failed.status, 500, "{}", failed.body);
    let line = log.requests().pop().unwrap();
    assert_eq!((&line["level"], &line["fields"]["account"]), (&json!("ERROR"), &json!("one")), "{line}");
    assert!(line["fields"]["cause"].is_string(), "{line}");
    // Anybody can ask for a sandbox that does not exist.
    fixture.send("49983-sbabcdefgh23.sandboxes.localhost", "POST /files", "", "").await;
    let line = log.requests().pop().unwrap();
    assert_eq!((&line["level"], &line["fields"]["status"]), (&json!("INFO"), &json!(502)), "{line}");
}

#[tokio::test]
async fn a_key_without_execute_gets_no_tokens() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({ "network": {"allowPublicTraffic": false} })).await;
    let own = fixture.ask(&format!("POST /sandboxes/{id}/connect"), json!({})).await;
    assert!(own.body["envdAccessToken"].is_string() && own.body["trafficAccessToken"].is_string());
    let call = format!("GET /sandboxes/{id}");
    let read = fixture.send("api.sandboxes.localhost", &call, key(3).as_str(), "").await;
    assert_eq!((read.status, &read.body["envdAccessToken"]), (200, &Value::Null));
    let port = fixture.send(&format!("3000-{id}.sandboxes.localhost"), "GET /", "", "").await;
    assert_eq!(port.status, 403);
}

#[tokio::test]
async fn a_request_without_the_token_does_not_resume() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({ "autoPause": true, "autoResume": {"enabled": true} })).await;
    let token =
        fixture.ask(&format!("POST /sandboxes/{id}/connect"), json!({})).await.body["envdAccessToken"]
            .clone();
    assert_eq!(fixture.ask(&format!("POST /sandboxes/{id}/pause"), Value::Null).await.status, 204);
    let state =
        async || fixture.ask(&format!("GET /sandboxes/{id}"), Value::Null).await.body["state"].clone();
    let host = format!("49983-{id}.sandboxes.localhost");
    let call = async |path: &str, token: &str| {
        let headers = [("x-access-token", token), ("content-type", "application/json")];
        let request = Request::builder().method("POST").uri(path).header("host", &host);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        fixture.relay.answer(request.body(Body::from("{}")).unwrap()).await.status().as_u16()
    };
    for path in ["/process.Process/List", "/files?path=a", "/files?path=a&signature=v1_x"] {
        assert_eq!((call(path, "wrong").await, state().await), (401, json!("paused")), "{path}");
    }
    assert_eq!(
        (call("/process.Process/List", token.as_str().unwrap()).await, state().await),
        (200, json!("running"))
    );
}

#[tokio::test]
async fn a_port_that_the_native_api_exposes_has_its_visibility() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let native = id.replacen("sb", "sb_", 1);
    let ask = async |host: &str, call: &str, body: &str| {
        let (method, path) = call.split_once(' ').unwrap();
        let request = Request::builder().method(method).uri(path).header("host", host);
        let request = match host {
            "localhost" => request
                .header("authorization", format!("Bearer {}", key(1).as_str()))
                .header("content-type", "application/json"),
            _ => request,
        };
        fixture.relay.answer(request.body(Body::from(body.to_owned())).unwrap()).await.status().as_u16()
    };
    let host = format!("8000-{id}.sandboxes.localhost");
    assert_eq!(ask(&host, "GET /", "").await, 502, "public, and nothing listens");
    let body = r#"{"port": 8000, "visibility": "private"}"#;
    assert_eq!(ask("localhost", &format!("POST /v1/sandboxes/{native}/ports"), body).await, 201);
    assert_eq!(ask(&host, "GET /", "").await, 401);
    // A key that opens only ports is in use, too.
    let (other, uses) = (key(6), &fixture.harness.service.gate.key_uses);
    let key_id = fixture.harness.service.gate.keyring.find(other.as_str()).unwrap().key_id;
    assert_eq!(uses.last_of(&key_id), None);
    let request = Request::builder().uri("/").header("host", &host);
    let request = request.header("authorization", format!("Bearer {}", other.as_str()));
    let answer = fixture.relay.answer(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status(), 502, "allowed, and nothing listens");
    assert!(uses.last_of(&key_id).is_some());
}

#[tokio::test]
async fn timeouts_are_set_and_extended() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({ "timeout": 100, "autoPause": true })).await;
    let left = async || {
        let got = fixture.ask(&format!("GET /sandboxes/{id}"), Value::Null).await;
        assert_eq!(got.body["lifecycle"]["onTimeout"], "pause");
        seconds_left(&got.body).round() as i64
    };
    let set = async |call: &str, seconds: u32| {
        fixture.ask(&format!("POST /sandboxes/{id}/{call}"), json!({ "timeout": seconds })).await.status
    };
    assert_eq!((set("timeout", 30).await, left().await), (204, 30), "shorter");
    assert_eq!((set("connect", 10).await, left().await), (200, 30), "a connect never shortens");
    assert_eq!((set("connect", 50).await, left().await), (200, 50));
    assert_eq!((set("resume", 50).await, set("timeout", 90_000).await), (409, 400));
}

#[tokio::test]
async fn lists_have_pages_and_show_only_sandboxes_of_this_api() {
    let fixture = Fixture::new().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(fixture.create(json!({ "metadata": {"n": (n % 2).to_string()} })).await);
    }
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let call = format!("GET /v2/sandboxes?limit=2&order=asc&nextToken={cursor}");
        let got = fixture.ask(&call, Value::Null).await;
        let page = got.body.as_array().unwrap();
        found.extend(page.iter().map(|it| it["sandboxID"].as_str().unwrap().to_owned()));
        match got.headers.get("x-next-token") {
            Some(next) => cursor = next.to_str().unwrap().to_owned(),
            None => break,
        }
    }
    found.sort();
    ids.sort();
    assert_eq!(found, ids);
    let ones = fixture.ask("GET /v2/sandboxes?metadata=n%3D1", Value::Null).await;
    assert_eq!(ones.body.as_array().unwrap().len(), 2);
    let theirs = fixture.send("localhost", "GET /v2/sandboxes", key(2).as_str(), "").await;
    assert_eq!(theirs.body, json!([]));
}

#[tokio::test]
async fn files_of_builds_are_bounded_and_need_a_signed_link() {
    let fixture = Fixture::new().await;
    let request = async |number: usize| {
        let got = fixture.ask("POST /v3/templates", json!({ "name": format!("built-{number}") })).await;
        assert_eq!(got.status, 202, "{}", got.body);
        got.body["templateID"].as_str().unwrap().to_owned()
    };
    let link = async |id: &str, hash: &str| {
        fixture.ask(&format!("GET /templates/{id}/files/{hash}"), Value::Null).await
    };
    // An archive without an entry.
    let put = async |path: &str, size: usize| {
        let call = format!("PUT {path}");
        fixture.send_with("api.sandboxes.localhost:8443", &call, &[], &"\0".repeat(size)).await.status
    };
    let upload = async |id: &str, hash: &str, size: usize| {
        let got = link(id, hash).await;
        let url = got.body["url"].as_str().unwrap().to_owned();
        put(url.strip_prefix("https://api.sandboxes.localhost:8443").unwrap(), size).await
    };
    let first = request(0).await;
    assert_eq!(put(&format!("/templates/{first}/files/aaaaaaaa?token=00"), 1024).await, 403);
    // The harness allows contexts of 1 MB: archives of a build have that size together.
    assert_eq!(upload(&first, "aaaaaaaa", 600 * 1024).await, 200);
    assert_eq!(upload(&first, "bbbbbbbb", 600 * 1024).await, 400);
    assert_eq!(upload(&first, "bbbbbbbb", 100 * 1024).await, 200);
    assert_eq!(link(&first, "aaaaaaaa").await.body["present"], true);
    // All builds of the account have four times that size together: 700 KB of the first, and 600 KB of each of the next ones.
    for number in 1..7 {
        let next = request(number).await;
        assert_eq!(link(&first, "cccccccc").await.status, 201, "build {number}");
        assert_eq!(upload(&next, "aaaaaaaa", 600 * 1024).await, 200);
    }
    assert_eq!(link(&first, "cccccccc").await.status, 404, "the oldest makes room");
}
