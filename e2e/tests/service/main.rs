//! The interface, section by section, over TLS against `sandboxd serve` on a real engine.
//!
//! Most tests share one service, each in an account of its own; who needs another configuration, or a restart, starts one.
//! The client looks at the form of each answer (headers, content type, error body, no 500), whatever a test is about.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod crash;
mod hostile;
mod hostile_bodies;
mod operations;
mod portal;
mod s10_files;
mod s10_files_hostile;
mod s11_events;
mod s11_events_kill;
mod s11_events_streams;
mod s12_executions;
mod s12_ports;
mod s12_ports_hostile;
mod s12_ports_traffic;
mod s12_terminals;
mod s13_disk_pressure;
mod s13_hundred;
mod s13_quotas;
mod s1_service;
mod s2_shapes;
mod s3_states;
mod s3_timers;
mod s4_10_idempotency;
mod s4_1_create;
mod s4_1_images;
mod s4_2_list;
mod s4_3_get;
mod s4_4_pause_resume;
mod s4_6_delete;
mod s4_7_execute;
mod s4_7_memory;
mod s4_7_refusals;
mod s4_8_health;
mod s5_auth;
mod s6_streams;
mod s7_errors;
mod s8_limits;
mod s9_versioning;
mod schemathesis;
#[path = "../support/skip.rs"]
mod skip;
mod walk;

use std::sync::{Arc, Weak};

use e2e::service::{Client, Events, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// An id that no sandbox has.
const NOBODY: &str = "sb_00000000000000000000";
const SANDBOXES: &str = "/v1/sandboxes";

/// The service that tests without wishes share. The last one that holds it stops it.
async fn shared() -> Arc<Service> {
    static SHARED: Mutex<Weak<Service>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(service) = shared.upgrade() {
        return service;
    }
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    *shared = Arc::downgrade(&service);
    service
}

/// The shared service and an account on it.
async fn user() -> (Arc<Service>, Client) {
    let service = shared().await;
    let client = service.account().await.unwrap();
    (service, client)
}

/// The body of a sandbox that is small and stays awake.
fn small() -> Value {
    json!({
        "image": Service::image(),
        "resources": { "memoryMb": 2048, "diskMb": 5120 },
        "timeoutMs": 3_600_000,
        "idleTimeoutMs": 0,
    })
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

/// A new sandbox's id.
async fn created(client: &Client) -> String {
    let sandbox = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    text(&sandbox["id"])
}

fn at(id: &str) -> String {
    format!("{SANDBOXES}/{id}")
}

fn verb(id: &str, verb: &str) -> String {
    format!("{SANDBOXES}/{id}/{verb}")
}

/// The result of a command.
async fn ran(client: &Client, id: &str, body: Value) -> Value {
    client.post(&verb(id, "execute"), &body).await.unwrap().is(200).unwrap()
}

/// What a command prints, which must succeed.
async fn output(client: &Client, id: &str, command: &str) -> String {
    let result = ran(client, id, json!({ "command": command })).await;
    assert_eq!(result["exitCode"], 0, "{command}: {result}");
    text(&result["stdout"])
}

/// Commands that run until they are dropped.
async fn occupied(client: &Client, id: &str, count: usize) -> Vec<Events> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let client = client.apart();
        let body = json!({ "command": "echo begun; sleep 600" });
        let mut events = client.call(Method::POST, &verb(id, "execute")).json(&body).stream().await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
        streams.push(events);
    }
    streams
}

async fn state(client: &Client, id: &str) -> String {
    text(&client.get(&at(id)).await.unwrap().is(200).unwrap()["state"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no whole number: {value}"))
}

/// Milliseconds of a timestamp, which has the form that all have.
fn time(value: &Value) -> u64 {
    let written = text(value);
    assert!(written.len() == 24 && written.ends_with('Z') && &written[19..20] == ".", "{written}");
    let time: api::Timestamp = written.parse().unwrap();
    assert_eq!(time.to_string(), written);
    time.0
}

fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap_or_else(|| panic!("no object: {object}")).keys().map(String::as_str).collect()
}

/// Waits for something that is to become so; the patience is for a slow machine.
async fn until(what: &str, mut so: impl AsyncFnMut() -> bool) {
    let begin = std::time::Instant::now();
    while !so().await {
        assert!(begin.elapsed() < std::time::Duration::from_secs(20), "in vain waited until {what}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
