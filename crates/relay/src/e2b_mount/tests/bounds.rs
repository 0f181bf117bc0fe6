//! Tests of what one account can take through this API: rates, quotas, memory; and of the end of tokens with their key.

use admission::in_flight::InFlight;
use admission::limiter::Limiter;
use admission::memory::FREE_BYTES;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http_body_util::BodyExt;
use listen::Application;
use native::testing::{add_key, gate_of, key_record};
use rules::{QuotaTable, Quotas, Rates, TimeMs};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use store::{Batch, KeyRecord, Write};

use super::*;
use crate::Relay;

const MIB: usize = 1 << 20;

/// An envelope of a stream.
fn envelope(json: &Value) -> Vec<u8> {
    let json = json.to_string();
    [&[0][..], &u32::try_from(json.len()).unwrap().to_be_bytes(), json.as_bytes()].concat()
}

fn start_body() -> Vec<u8> {
    envelope(&json!({ "process": { "cmd": "/bin/echo", "args": ["hi"] }, "stdin": false }))
}

/// A response, of streams the first bytes.
async fn call(
    fixture: &Fixture,
    id: &str,
    (path, content_type): (&str, &str),
    token: &str,
    body: impl Into<Body>,
) -> Response {
    let request = Request::builder()
        .method(if path.starts_with("/files?") { Method::GET } else { Method::POST })
        .uri(path)
        .header("host", format!("49983-{id}.sandboxes.localhost"))
        .header("content-type", content_type);
    let request = if token.is_empty() { request } else { request.header("x-access-token", token) };
    fixture.relay.answer(request.body(body.into()).unwrap()).await
}

const START: (&str, &str) = ("/process.Process/Start", "application/connect+json");
const LIST: (&str, &str) = ("/process.Process/List", "application/json");

async fn text_of(response: Response) -> String {
    String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned()
}

async fn token(fixture: &Fixture, id: &str) -> String {
    let got = fixture.ask(&format!("POST /sandboxes/{id}/connect"), json!({})).await;
    got.body["envdAccessToken"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_start_of_a_process_counts_as_an_execution() {
    let rates = Rates { execute: 2, ..Rates::UNLIMITED };
    let fixture = Fixture::with(|service| gate_of(service).limiter = Limiter::new(rates)).await;
    let ids = [fixture.create(json!({})).await, fixture.create(json!({})).await];
    for id in &ids {
        let token = token(&fixture, id).await;
        for attempt in 0..4 {
            let answered = text_of(call(&fixture, id, START, &token, start_body()).await).await;
            assert_eq!(answered.contains("resource_exhausted"), attempt >= 2, "{attempt}: {answered}");
        }
        // Without a valid token nothing counts, and other calls do not.
        assert_eq!(call(&fixture, id, START, "wrong", start_body()).await.status(), 401);
        assert_eq!(call(&fixture, id, LIST, &token, "{}").await.status(), 200);
    }
    // The native API counts in the same window.
    let native = ids[0].replacen("sb", "sb_", 1);
    let request = Request::builder()
        .method("POST")
        .uri(format!("/v1/sandboxes/{native}/execute"))
        .header("host", "localhost")
        .header("authorization", format!("Bearer {}", key(1).as_str()))
        .header("content-type", "application/json")
        .body(Body::from(r#"{"command": "true"}"#))
        .unwrap();
    assert_eq!(fixture.relay.answer(request).await.status(), 429);
}

#[tokio::test]
async fn a_start_has_the_limit_of_the_key_of_its_token() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let limits = "1".parse().unwrap();
    let record = KeyRecord { limits, ..key_record(9, "one", "read,execute,write") };
    add_key(&fixture.harness.service, record).await.unwrap();
    let connect = format!("POST /sandboxes/{id}/connect");
    let got = fixture.send("api.sandboxes.localhost", &connect, key(9).as_str(), "{}").await;
    let limited = got.body["envdAccessToken"].as_str().unwrap();
    let other = token(&fixture, &id).await;
    for (token, refused) in [(limited, false), (limited, true), (&*other, false)] {
        let answered = text_of(call(&fixture, &id, START, token, start_body()).await).await;
        assert_eq!(answered.contains("resource_exhausted"), refused, "{answered}");
    }
}

#[tokio::test]
async fn a_refused_request_does_not_resume() {
    let rates = Rates { execute: 1, ..Rates::UNLIMITED };
    let fixture = Fixture::with(|service| gate_of(service).limiter = Limiter::new(rates)).await;
    let id = fixture.create(json!({ "autoPause": true, "autoResume": {"enabled": true} })).await;
    let token = token(&fixture, &id).await;
    text_of(call(&fixture, &id, START, &token, start_body()).await).await;
    assert_eq!(fixture.ask(&format!("POST /sandboxes/{id}/pause"), Value::Null).await.status, 204);
    let state =
        async || fixture.ask(&format!("GET /sandboxes/{id}"), Value::Null).await.body["state"].clone();
    for (refused, status) in
        [(START, 200), ((LIST.0, "text/plain"), 415), (("/nothing", "application/json"), 404)]
    {
        let answered = call(&fixture, &id, refused, &token, start_body()).await;
        assert_eq!((answered.status().as_u16(), state().await), (status, json!("paused")), "{refused:?}");
        let text = text_of(answered).await;
        assert_eq!(text.contains("resource_exhausted"), refused == START, "{text}");
    }
    assert_eq!(call(&fixture, &id, LIST, &token, "{}").await.status(), 200);
    assert_eq!(state().await, "running");
}

/// A body whose bytes are given and which never ends.
fn endless(bytes: Vec<u8>) -> Body {
    use futures_util::StreamExt as _;
    let given = futures_util::stream::once(async { Ok::<_, std::io::Error>(Bytes::from(bytes)) });
    Body::from_stream(given.chain(futures_util::stream::pending()))
}

#[tokio::test]
async fn bodies_are_in_the_memory_of_request_bodies() {
    let fixture = Arc::new(Fixture::new().await);
    let id = fixture.create(json!({})).await;
    let token = token(&fixture, &id).await;
    tokio::time::pause();
    let reserved = || fixture.harness.service.gate.request_memory.reserved_bytes();
    let announced = [&[0, 0, 0x40, 0, 0][..], &vec![b' '; 4 * MIB - 1]].concat();
    let mut held = tokio::task::JoinSet::new();
    let mut send = async |path: &'static str, kind: &'static str, bytes: Vec<u8>| {
        let (fixture, id, token) = (Arc::clone(&fixture), id.clone(), token.clone());
        held.spawn(async move { call(&fixture, &id, (path, kind), &token, endless(bytes)).await });
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    };
    for path in ["/process.Process/Start", "/process.Process/StreamInput"] {
        send(path, "application/connect+json", announced.clone()).await;
    }
    send("/process.Process/SendInput", "application/json", vec![b' '; 4 * MIB]).await;
    let one = 4 * MIB - FREE_BYTES - 1;
    assert_eq!(reserved(), 3 * one + 1);
    // The account has room for twelve.
    for _ in 0..12 {
        send("/process.Process/Start", "application/connect+json", announced.clone()).await;
    }
    let full = reserved();
    assert!((11 * one..=48 * MIB).contains(&full), "{full}");
    // The others waited for five seconds and were refused; small messages need no memory.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(call(&fixture, &id, LIST, &token, "{}").await.status(), 200);
    let big = vec![b' '; MIB];
    let refused = call(&fixture, &id, ("/process.Process/SendInput", "application/json"), &token, big).await;
    assert_eq!(refused.status(), 429);
    assert!(text_of(refused).await.contains("the memory for request bodies is full"));
    // A message of a stream that does not become complete is given up after a minute.
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(reserved() < full - one / 2, "{} of {full}", reserved());
    held.abort_all();
    while held.join_next().await.is_some() {}
    assert_eq!(reserved(), 0);
}

#[tokio::test]
async fn short_messages_and_bodies_with_many_values_are_refused() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let token = token(&fixture, &id).await;
    let stat = ("/filesystem.Filesystem/Stat", "application/json");
    let path = json!({ "path": format!("/{}", r"\u0001".repeat(600)) }).to_string();
    assert_eq!(call(&fixture, &id, stat, &token, path).await.status(), 404);
    let long = format!("{{\"path\":\"/\",\"x\":\"{}\"}}", "x".repeat(64 * 1024));
    assert_eq!(call(&fixture, &id, stat, &token, long).await.status(), 429);
    let many = format!("{{\"templateID\":\"ubuntu:24.04\",\"x\":[{}]}}", vec!["0"; 100_000].join(","));
    let got = fixture.send("api.sandboxes.localhost", "POST /sandboxes", &key(1).e2b_text(), &many).await;
    assert_eq!(got.status, 400);
    assert!(got.body["message"].as_str().unwrap().contains("values"), "{}", got.body);
}

/// A path to upload files of a new build.
async fn upload_path(fixture: &Fixture, name: &str) -> String {
    let got = fixture.ask("POST /v3/templates", json!({ "name": name })).await;
    let call = format!("GET /templates/{}/files/aaaaaaaa", got.body["templateID"].as_str().unwrap());
    let url = fixture.ask(&call, Value::Null).await.body["url"].as_str().unwrap().to_owned();
    url.strip_prefix("https://api.sandboxes.localhost:8443").unwrap().to_owned()
}

async fn put(fixture: &Fixture, path: &str, body: Body) -> Response {
    let request = Request::builder().method("PUT").uri(path).header("host", "api.sandboxes.localhost:8443");
    fixture.relay.answer(request.body(body).unwrap()).await
}

#[tokio::test]
async fn uploads_by_a_link_count_as_requests_of_the_key() {
    let quotas = Quotas { connections: Some(2), ..Quotas::default() };
    let fixture = Fixture::with(|service| {
        gate_of(service).in_flight = InFlight::new(QuotaTable { default: quotas, ..QuotaTable::default() });
    })
    .await;
    let path = upload_path(&fixture, "first").await;
    let mut uploads: Vec<_> = (0..2).map(|_| Box::pin(put(&fixture, &path, endless(vec![0; 512])))).collect();
    for upload in &mut uploads {
        assert!(upload.as_mut().now_or_never().is_none());
    }
    assert_eq!(fixture.harness.service.gate.in_flight.of("one"), (2, 0));
    assert_eq!(put(&fixture, &path, Body::from(vec![0; 1024])).await.status(), 429);
    drop(uploads);
    assert_eq!(put(&fixture, &path, Body::from(vec![0; 1024])).await.status(), 200);
    assert_eq!(fixture.harness.service.gate.in_flight.of("one"), (0, 0));

    let rates = Rates { write: 2, ..Rates::UNLIMITED };
    let fixture = Fixture::with(|service| gate_of(service).limiter = Limiter::new(rates)).await;
    // The request of a build is a write, too.
    let path = upload_path(&fixture, "second").await;
    assert_eq!(put(&fixture, &path, Body::from(vec![0; 1024])).await.status(), 200);
    let refused = put(&fixture, &path, Body::from(vec![0; 1024])).await;
    assert_eq!(refused.status(), 429);
    assert!(refused.headers().contains_key("retry-after"));
}

/// What clients compute for a URL.
fn signature(path: &str, token: &str) -> String {
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(format!("{path}:read::{token}"))))
}

async fn revoke(fixture: &Fixture, id: &str) {
    let service = &fixture.harness.service;
    let write = Write::RevokeKey { id: id.to_owned(), at: TimeMs(2) };
    service.store.commit(Batch::new().with(write)).await.unwrap();
    assert!(service.gate.keyring.refresh(service.store.as_ref()).await.unwrap());
}

#[tokio::test]
async fn all_tokens_of_a_key_end_with_it() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({ "network": {"allowPublicTraffic": false} })).await;
    let connect = async |key: &str| {
        let call = format!("POST /sandboxes/{id}/connect");
        fixture.send("api.sandboxes.localhost", &call, key, "{}").await.body
    };
    let (own, other) = (connect(key(1).as_str()).await, connect(key(6).as_str()).await);
    let link = upload_path(&fixture, "built").await;
    let allowed = async |view: &Value| {
        let token = view["envdAccessToken"].as_str().unwrap();
        let by_token = call(&fixture, &id, LIST, token, "{}").await.status() == 200;
        let uri = format!("/files?path=%2Fx&signature={}", signature("/x", token).replace('+', "%2B"));
        let by_signature = call(&fixture, &id, (&uri, ""), "", "").await.status() == 404;
        let port = fixture.relay.answer(
            Request::builder()
                .uri("/")
                .header("host", format!("3000-{id}.sandboxes.localhost"))
                .header("e2b-traffic-access-token", view["trafficAccessToken"].as_str().unwrap())
                .body(Body::empty())
                .unwrap(),
        );
        [by_token, by_signature, port.await.status() != 403]
    };
    assert_eq!((allowed(&own).await, allowed(&other).await), ([true; 3], [true; 3]));
    let stream = call(
        &fixture,
        &id,
        ("/filesystem.Filesystem/WatchDir", START.1),
        own["envdAccessToken"].as_str().unwrap(),
        envelope(&json!({ "path": "/" })),
    );
    let stream = stream.await;
    let own_token = own["envdAccessToken"].as_str().unwrap();
    let input = ("/process.Process/StreamInput", START.1);
    let mut input = Box::pin(call(&fixture, &id, input, own_token, endless(Vec::new())));
    assert!(input.as_mut().now_or_never().is_none());
    revoke(&fixture, "key_1").await;
    assert_eq!((allowed(&own).await, allowed(&other).await), ([false; 3], [true; 3]));
    assert_eq!(put(&fixture, &link, Body::from(vec![0; 1024])).await.status(), 403);
    // Open streams end at the next check.
    for ending in [text_of(stream), text_of(input.await)] {
        let rest = tokio::time::timeout(Duration::from_secs(60), ending).await.unwrap();
        assert!(rest.contains("unauthenticated") && rest.contains("revoked"), "{rest}");
    }
    // A new server with the same secret and store, as after a restart.
    let e2b = Some(e2b_of(&fixture.harness.service));
    let fixture = Fixture { relay: Relay { api: fixture.relay.api.clone(), e2b }, ..fixture };
    let token = |view: &Value| view["envdAccessToken"].as_str().unwrap().to_owned();
    assert_eq!(call(&fixture, &id, LIST, &token(&own), "{}").await.status(), 401);
    assert_eq!(call(&fixture, &id, LIST, &token(&other), "{}").await.status(), 200);
}

#[tokio::test]
async fn a_link_to_upload_needs_a_key_that_may_write() {
    let fixture = Fixture::new().await;
    let got = fixture.ask("POST /v3/templates", json!({ "name": "built" })).await;
    let call = format!("GET /templates/{}/files/aaaaaaaa", got.body["templateID"].as_str().unwrap());
    let reader = fixture.send("api.sandboxes.localhost", &call, key(3).as_str(), "").await;
    assert_eq!(reader.status, 403, "{}", reader.body);
}

#[tokio::test]
async fn a_listing_is_in_the_memory_of_responses() {
    let fixture = Fixture::new().await;
    let id = fixture.create(json!({})).await;
    let token = token(&fixture, &id).await;
    let list = ("/filesystem.Filesystem/ListDir", "application/json");
    let listed = call(&fixture, &id, list, &token, r#"{"path": "/"}"#).await;
    assert_eq!(listed.status(), 200);
    assert_ne!(fixture.harness.service.gate.output_memory.reserved_bytes(), 0);
    let json: Value = serde_json::from_str(&text_of(listed).await).unwrap();
    assert!(json["entries"].is_array(), "{json}");
    assert_eq!(fixture.harness.service.gate.output_memory.reserved_bytes(), 0);
}
