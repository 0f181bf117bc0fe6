//! Quotas of accounts: exact under concurrent creates, valid across restarts, and independent of other accounts.

use e2e::service::{Client, Service, ServiceOptions};
use serde_json::{Value, json};

use crate::{SANDBOXES, action_path, create_sandbox, output, sandbox_path, small, text};

/// The details of a refusal: which quota, and used, requested and allowed.
fn refusal(error: &Value) -> (&str, [u64; 3]) {
    let details = &error["details"];
    let number = |name: &str| details[name].as_u64().unwrap();
    (details["quota"].as_str().unwrap(), [number("used"), number("requested"), number("allowed")])
}

async fn refused(client: &Client, body: &Value) -> Value {
    client.post(SANDBOXES, body).await.unwrap().error(429, "QUOTA_EXCEEDED").unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_creates_get_exactly_what_the_quota_allows() {
    let pool = format!("\"{}\"", Service::image());
    let options = ServiceOptions::default()
        .with("quotas", "sandboxes", "3")
        .with("quotas", "vcpus", "4")
        .with("pool", &pool, "2");
    let service = Service::start(&options).await.unwrap();
    let (client, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    // Of the warm pool's size, so that its sandboxes are claimed.
    let body = json!({ "image": Service::image(), "idleTimeoutMs": 0 });
    let calls: Vec<_> = (0..12)
        .map(|_| {
            let (client, body) = (client.with_own_connections(), body.clone());
            tokio::spawn(async move { client.post(SANDBOXES, &body).await.unwrap() })
        })
        .collect();
    let mut ids = Vec::new();
    for call in calls {
        let answer = call.await.unwrap();
        match answer.status {
            201 => ids.push(text(&answer.json().unwrap()["id"])),
            _ => assert_eq!(
                refusal(&answer.error(429, "QUOTA_EXCEEDED").unwrap()),
                ("quotas.vcpus", [4, 2, 4])
            ),
        }
    }
    assert_eq!(ids.len(), 2);
    client.post_empty(&action_path(&ids[0], "pause")).await.unwrap().is(200).unwrap();
    let third = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
    let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
    assert_eq!(usage["sandboxes"], json!({ "used": 3, "allowed": 3 }), "{usage}");
    assert_eq!(usage["vcpus"], json!({ "used": 4, "allowed": 4 }), "{usage}");
    let resume = client
        .post_empty(&action_path(&ids[0], "resume"))
        .await
        .unwrap()
        .error(429, "QUOTA_EXCEEDED")
        .unwrap();
    assert_eq!(refusal(&resume), ("quotas.vcpus", [4, 2, 4]));
    // A command in a paused sandbox resumes it, or is refused alike.
    let execute = client.post(&action_path(&ids[0], "execute"), &json!({ "command": "true" })).await.unwrap();
    assert_eq!(refusal(&execute.error(429, "QUOTA_EXCEEDED").unwrap()).0, "quotas.vcpus");
    client.post_empty(&action_path(&ids[1], "pause")).await.unwrap().is(200).unwrap();
    let error = refused(&client, &body).await;
    assert_eq!(refusal(&error), ("quotas.sandboxes", [3, 1, 3]));
    assert!(text(&error["message"]).contains("the operator sets quotas.sandboxes"));
    assert_eq!(
        (&error["details"]["value"], &error["details"]["key"]),
        (&json!(3), &json!("quotas.sandboxes"))
    );
    assert!(error["details"]["retryAfter"].is_u64());
    // Another account has its own quota.
    assert_eq!(output(&other, &create_sandbox(&other).await, "echo hi").await, "hi\n");

    // Recovered sandboxes count.
    service.restart().await.unwrap();
    assert_eq!(refusal(&refused(&client, &body).await), ("quotas.sandboxes", [3, 1, 3]));
    service.kill().unwrap();
    service.start_process().await.unwrap();
    assert_eq!(refusal(&refused(&client, &body).await).0, "quotas.sandboxes");
    client.delete(&sandbox_path(&text(&third["id"]))).await.unwrap().is(200).unwrap();
    client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
}

#[tokio::test]
async fn disk_memory_and_execution_logs_have_separate_quotas() {
    let options = ServiceOptions::default()
        .with("quotas", "memory_mb", "5000")
        .with("quotas", "disk_mb", "11000")
        .with("quotas", "execution_logs_mb", "1");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let large = |resources: Value| json!({ "image": Service::image(), "resources": resources });
    let error = refused(&client, &large(json!({ "memoryMb": 4096, "diskMb": 5120 }))).await;
    assert_eq!(refusal(&error), ("quotas.memory_mb", [2048, 4096, 5000]));
    let error = refused(&client, &large(json!({ "memoryMb": 2048, "diskMb": 6000 }))).await;
    assert_eq!(refusal(&error), ("quotas.disk_mb", [5120, 6000, 11_000]));
    // Refused creates leave nothing, not even an event.
    let list = client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    assert_eq!(list["pagination"]["total"], 1);
    let failures = client.get("/v1/events?type=sandbox.error").await.unwrap().is(200).unwrap();
    assert_eq!(failures["data"], json!([]));

    let detached = |command: &str| json!({ "command": command, "detached": true });
    let execute = action_path(&id, "execute");
    client.post(&execute, &detached("head -c 3M /dev/zero | tr '\\0' x")).await.unwrap().is(201).unwrap();
    let mut last = None;
    crate::wait_until("its log is above the quota", async || {
        let answer = client.post(&execute, &detached("true")).await.unwrap();
        let exceeded = answer.status == 429 && answer.json().unwrap()["error"]["code"] == "QUOTA_EXCEEDED";
        last = exceeded.then(|| answer.json().unwrap());
        exceeded
    })
    .await;
    let error = last.unwrap()["error"].take();
    assert_eq!(refusal(&error).0, "quotas.execution_logs_mb");
    // Attached commands leave no log.
    assert_eq!(output(&client, &id, "echo hi").await, "hi\n");
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let id = create_sandbox(&client).await;
    client.post(&action_path(&id, "execute"), &detached("true")).await.unwrap().is(201).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_and_requests_in_flight_are_counted_until_they_end() {
    let options = ServiceOptions::default().with("quotas", "streams", "3").with("quotas", "connections", "6");
    let service = Service::start(&options).await.unwrap();
    let (client, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    let id = create_sandbox(&client).await;
    let follow = || client.call(hyper::Method::GET, "/v1/events").header("accept", "text/event-stream");
    let mut streams = Vec::new();
    for _ in 0..3 {
        streams.push(
            client.with_own_connections().call(hyper::Method::GET, "/v1/events").stream().await.unwrap(),
        );
    }
    let error = follow().send().await.unwrap().error(429, "QUOTA_EXCEEDED").unwrap();
    assert_eq!(refusal(&error), ("quotas.streams", [3, 1, 3]));
    // A streamed command is refused before it runs.
    let body = json!({ "command": "touch /ran" });
    let command =
        client.call(hyper::Method::POST, &action_path(&id, "execute")).header("accept", "text/event-stream");
    command.json(&body).send().await.unwrap().error(429, "QUOTA_EXCEEDED").unwrap();
    assert_eq!(output(&client, &id, "ls /ran 2>/dev/null || echo not").await, "not\n");
    other.call(hyper::Method::GET, "/v1/events").stream().await.unwrap();

    // Three requests beside the three streams, and no more.
    let long: Vec<_> = (0..3)
        .map(|_| {
            let (client, path) = (client.with_own_connections(), action_path(&id, "execute"));
            tokio::spawn(async move {
                client.post(&path, &json!({ "command": "sleep 5" })).await.unwrap().is(200)
            })
        })
        .collect();
    let mut seen = None;
    crate::wait_until("the quota of requests is used up", async || {
        let answer = client.get(&sandbox_path(&id)).await.unwrap();
        seen = (answer.status == 429).then(|| answer.error(429, "QUOTA_EXCEEDED").unwrap());
        seen.is_some()
    })
    .await;
    assert_eq!(refusal(&seen.unwrap()), ("quotas.connections", [6, 1, 6]));
    for call in long {
        call.await.unwrap().unwrap();
    }
    client.get(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    // A stream that is closed is no longer counted.
    streams.pop();
    let mut again = None;
    crate::wait_until("a stream is available", async || {
        again = client.with_own_connections().call(hyper::Method::GET, "/v1/events").stream().await.ok();
        again.is_some()
    })
    .await;
    // Other requests of the account work.
    client.post(SANDBOXES, &small()).await.unwrap().is(201).unwrap();
}

#[tokio::test]
async fn an_account_can_have_its_own_quotas() {
    let options = ServiceOptions::default().with("quotas", "sandboxes", "1").with(
        "quotas.accounts.\"large\"",
        "sandboxes",
        "2",
    );
    let service = Service::start(&options).await.unwrap();
    for (account, allowed, key) in
        [("small", 1, "quotas.sandboxes"), ("large", 2, "quotas.accounts.\"large\".sandboxes")]
    {
        let client = service.client_with_new_key(account, "read,execute,write").await.unwrap();
        let mut count = 0;
        while client.post(SANDBOXES, &small()).await.unwrap().status == 201 {
            count += 1;
        }
        assert_eq!(count, allowed, "{account}");
        let error = refused(&client, &small()).await;
        assert_eq!(error["details"]["key"], key, "{error}");
    }
}
