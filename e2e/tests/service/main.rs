//! Tests of the whole API over TLS against `sandboxd serve` with a real engine. Each feature has a folder or a file.
//!
//! Most tests share one service and have their own account; tests that need another configuration or a restart start their own.
//! The client checks the form of every response (headers, content type, error body, no 500).
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod authorization;
mod code;
mod events;
mod execute;
mod files;
mod hibernation;
mod images;
mod isolation;
mod lifecycle;
mod limits;
mod object_store;
mod operations;
mod ports;
mod protocol;
#[path = "../support/skip.rs"]
mod skip;
mod snapshots;
mod templates;

use std::sync::{Arc, Weak};

use e2e::service::{
    Client, Events, SANDBOXES, Service, ServiceOptions, action_path, number, output, run_command,
    sandbox_path, small, state, text, with,
};
use e2e::wait_until;
use hyper::Method;
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// A well-formed id that no sandbox has.
const UNKNOWN_ID: &str = "sb_00000000000000000000";
const SNAPSHOTS: &str = "/v1/snapshots";

/// The service that most tests share. The last test that holds it stops it.
async fn shared_service() -> Arc<Service> {
    static SHARED: Mutex<Weak<Service>> = Mutex::const_new(Weak::new());
    let mut shared = SHARED.lock().await;
    if let Some(service) = shared.upgrade() {
        return service;
    }
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    *shared = Arc::downgrade(&service);
    service
}

/// The shared service and a client with a new account.
async fn user() -> (Arc<Service>, Client) {
    let service = shared_service().await;
    let client = service.account().await.unwrap();
    (service, client)
}

/// A new sandbox's id.
async fn create_sandbox(client: &Client) -> String {
    let sandbox = client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
    text(&sandbox["id"])
}

/// The id of a new snapshot.
async fn take_snapshot(client: &Client, id: &str) -> String {
    let taken = client.post(&action_path(id, "snapshots"), &json!({})).await.unwrap().is(201).unwrap();
    text(&taken["id"])
}

/// The path of an execution, or of a part of it such as `/output`.
fn execution_path(id: &str, execution: &str, part: &str) -> String {
    format!("{}/executions/{execution}{part}", sandbox_path(id))
}

/// Starts commands that run until their streams are dropped.
async fn start_sleepers(client: &Client, id: &str, count: usize) -> Vec<Events> {
    let mut streams = Vec::with_capacity(count);
    for _ in 0..count {
        let client = client.with_own_connections();
        let body = json!({ "command": "echo begun; sleep 600" });
        let mut events =
            client.call(Method::POST, &action_path(id, "execute")).json(&body).stream().await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
        streams.push(events);
    }
    streams
}

/// The ids of the items of a list.
fn ids(list: &Value) -> Vec<String> {
    list["data"].as_array().unwrap().iter().map(|item| text(&item["id"])).collect()
}

/// A timestamp in milliseconds; checks its form.
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
    object
        .as_object()
        .unwrap_or_else(|| panic!("not an object: {object}"))
        .keys()
        .map(String::as_str)
        .collect()
}

/// The number of times that a test kills the daemon: more for a soak, with `SANDBOXD_TEST_KILLS`.
fn rounds(default: u32) -> u32 {
    std::env::var("SANDBOXD_TEST_KILLS").ok().map_or(default, |rounds| rounds.parse().unwrap())
}
