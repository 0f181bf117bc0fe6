//! Hibernation: what the API shows of it, and which requests it refuses.

use std::time::Duration;

use e2e::service::{Client, Service, ServiceOptions, small, with};
use e2e::{Expected, RigOptions};
use hyper::Method;
use rand::RngExt;
use serde_json::{Value, json};

use crate::{
    SANDBOXES, action_path, create_sandbox, keys, output, rounds, sandbox_path, state, text, time, user,
};

async fn create_with(client: &Client, isolation: &str) -> String {
    let body = with(small(), "isolation", json!(isolation));
    text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"])
}

async fn view(client: &Client, id: &str) -> Value {
    client.get(&sandbox_path(id)).await.unwrap().is(200).unwrap()
}

async fn hibernate(client: &Client, id: &str) -> Value {
    let body = json!({ "hibernate": true });
    client.post(&action_path(id, "pause"), &body).await.unwrap().is(200).unwrap()
}

/// Starts a process that outlives its command.
async fn start_sleep(client: &Client, id: &str) {
    let script = "sleep 1000 > /dev/null 2>&1 & echo $! > pid; \
                  for n in {1..500}; do [ \"$(cat /proc/$!/comm)\" = sleep ] && break; sleep 0.01; done";
    output(client, id, script).await;
}

async fn sleeps(client: &Client, id: &str) -> bool {
    output(client, id, "ps -o comm= -p $(cat pid) || true").await == "sleep\n"
}

async fn events(client: &Client, id: &str, kind: &str) -> Vec<Value> {
    let path = format!("/v1/events?sandboxId={id}&type={kind}");
    client.get(&path).await.unwrap().is(200).unwrap()["data"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_hibernated_sandbox_is_paused_and_wakes_with_its_processes() {
    let (_service, client) = user().await;
    let id = create_with(&client, "gvisor").await;
    start_sleep(&client, &id).await;
    let paused = hibernate(&client, &id).await;
    assert_eq!(keys(&paused), ["id", "pausedAt", "runtimeDurationMs", "state"]);
    let stored = view(&client, &id).await;
    assert_eq!((&stored["state"], &stored["pausedAt"]), (&json!("paused"), &paused["pausedAt"]));
    assert!(time(&stored["hibernatedAt"]) >= time(&stored["pausedAt"]));
    // Nothing is left to do.
    assert_eq!(hibernate(&client, &id).await, paused);
    assert_eq!(view(&client, &id).await["hibernatedAt"], stored["hibernatedAt"]);
    let recorded = events(&client, &id, "sandbox.hibernated").await;
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    assert_eq!(recorded[0]["data"]["reason"], "request");

    assert!(sleeps(&client, &id).await);
    let awake = view(&client, &id).await;
    assert_eq!((&awake["state"], &awake["hibernatedAt"]), (&json!("running"), &Value::Null));

    // Also of a sandbox that is paused already.
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    assert!(view(&client, &id).await.get("hibernatedAt").is_none());
    hibernate(&client, &id).await;
    assert!(view(&client, &id).await.get("hibernatedAt").is_some());
    client.post_empty(&action_path(&id, "resume")).await.unwrap().is(200).unwrap();
    assert!(sleeps(&client, &id).await);
}

#[tokio::test]
async fn a_cold_resume_ends_processes_and_keeps_the_disk() {
    let (_service, client) = user().await;
    for (isolation, body) in
        [("gvisor", json!({ "hibernate": true })), ("gvisor", json!({})), ("container", json!({}))]
    {
        let id = create_with(&client, isolation).await;
        start_sleep(&client, &id).await;
        let boot_id = "cat /proc/sys/kernel/random/boot_id";
        let first_boot = output(&client, &id, boot_id).await;
        client.post(&action_path(&id, "pause"), &body).await.unwrap().is(200).unwrap();
        let cold = json!({ "cold": true });
        let resumed = client.post(&action_path(&id, "resume"), &cold).await.unwrap().is(200).unwrap();
        assert_eq!(keys(&resumed), ["id", "pausedDurationMs", "resumedAt", "state"]);
        assert!(!sleeps(&client, &id).await, "{isolation}, {body}");
        // An OCI runtime shows that of the host.
        if isolation == "gvisor" || RigOptions::default().runtime.is_none() {
            assert_ne!(output(&client, &id, boot_id).await, first_boot, "{isolation}, {body}");
        }
        assert!(view(&client, &id).await.get("hibernatedAt").is_none());
        // A running sandbox keeps its processes.
        start_sleep(&client, &id).await;
        let refused = client.post(&action_path(&id, "resume"), &cold).await.unwrap();
        refused.error(409, "INVALID_STATE").unwrap();
        assert!(sleeps(&client, &id).await);
    }
}

#[tokio::test]
async fn containers_cannot_be_hibernated() {
    let (_service, client) = user().await;
    let id = create_with(&client, "container").await;
    let refused = client.post(&action_path(&id, "pause"), &json!({ "hibernate": true })).await.unwrap();
    refused.error(409, "ISOLATION_MISMATCH").unwrap();
    assert_eq!(state(&client, &id).await, "running");
    client.post(&action_path(&id, "pause"), &json!({ "hibernate": false })).await.unwrap().is(200).unwrap();
    let refused = client.post(&action_path(&id, "pause"), &json!({ "hibernate": true })).await.unwrap();
    refused.error(409, "ISOLATION_MISMATCH").unwrap();
    assert_eq!(state(&client, &id).await, "paused");
}

#[tokio::test]
async fn bodies_of_pause_and_resume_are_optional() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for body in
        [json!({ "hibernate": 1 }), json!({ "hibernate": "true" }), json!([]), json!("x"), Value::Null]
    {
        let refused = client.post(&action_path(&id, "pause"), &body).await.unwrap();
        refused.error(400, "INVALID_REQUEST").unwrap();
    }
    let ignored = [("text/plain", "please"), ("application/json", ""), ("application/json", " {} ")];
    for (kind, body) in ignored {
        for verb in ["pause", "resume"] {
            let call = client.call(Method::POST, &action_path(&id, verb)).body(kind, body.into());
            call.send().await.unwrap().is(200).unwrap();
        }
    }
    client.post(&action_path(&id, "pause"), &json!({ "unknown": 1 })).await.unwrap().is(200).unwrap();
    let refused = client.post(&action_path(&id, "resume"), &json!({ "cold": [] })).await.unwrap();
    refused.error(400, "INVALID_REQUEST").unwrap();
}

#[tokio::test]
async fn the_service_says_which_isolation_can_be_hibernated() {
    let (_service, client) = user().await;
    let info = client.get("/v1/info").await.unwrap().is(200).unwrap();
    for (isolation, can) in [("container", false), ("gvisor", true)] {
        let backends = info["backends"].as_array().unwrap();
        let backend = backends.iter().find(|backend| backend["name"] == isolation).unwrap();
        assert_eq!(backend["hibernation"], can, "{info}");
    }
}

/// `kill -9` of the daemon while processes are stored and continued: they are in memory or on the disk afterwards, never gone.
#[tokio::test]
async fn kills_of_the_daemon_lose_no_processes() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_with(&client, "gvisor").await;
    let hold = "perl -e 'open(R, \"<\", \"/dev/urandom\"); read(R, $x, 128 << 20); open(F, \">\", \"full\"); close F; sleep 9999' \
                > /dev/null 2>&1 & echo $! > pid; until [ -e full ]; do sleep 0.1; done";
    output(&client, &id, hold).await;
    for round in 0..rounds(12) {
        let wakes = round % 2 == 1;
        if wakes {
            hibernate(&client.with_own_connections(), &id).await;
        }
        let working = tokio::spawn({
            let (client, id) = (client.with_own_connections(), id.clone());
            async move {
                let (verb, body) = if wakes {
                    ("execute", json!({ "command": "true" }))
                } else {
                    ("pause", json!({ "hibernate": true }))
                };
                client.post(&action_path(&id, verb), &body).await.map(|answer| answer.status)
            }
        });
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(0..500))).await;
        service.kill().unwrap();
        let answer = working.await.unwrap();
        service.start_process().await.unwrap();
        let client = client.with_own_connections();
        let found = view(&client, &id).await;
        if !wakes && answer.is_ok_and(|status| status == 200) {
            assert!(found.get("hibernatedAt").is_some(), "round {round}: {found}");
        }
        let holds = output(&client, &id, "ps -o comm= -p $(cat pid) || true").await;
        assert_eq!(holds, "perl\n", "round {round}: it was {found}");
    }
    client.with_own_connections().delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let expected = Expected { daemon: service.pid(), ..Expected::default() };
    assert_eq!(e2e::wait_for_resources(&service.layout, &expected).await, Vec::<String>::new());
}
