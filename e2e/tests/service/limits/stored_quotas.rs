//! Quotas of stored bytes: above a quota the oldest records of the account are evicted, and nothing is refused.

use e2e::service::{Client, HttpResponse, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::events::{EVENTS, all_events, events_path};
use crate::{action_path, create_sandbox, number, run_command, sandbox_path, text, wait_until};

const MIB: u64 = 1 << 20;

/// A quota of `GET /v1/usage`: used and allowed.
async fn usage(client: &Client, name: &str) -> [u64; 2] {
    let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
    ["used", "allowed"].map(|field| number(&usage[name][field]))
}

async fn execute_with_key(client: &Client, id: &str, key: &str, command: &str) -> HttpResponse {
    let call = client.call(Method::POST, &action_path(id, "execute")).header("idempotency-key", key);
    call.json(&json!({ "command": command })).send().await.unwrap()
}

fn is_replayed(answer: &HttpResponse) -> bool {
    answer.header("idempotency-replayed") == Some("true")
}

/// Twelve responses of about 200 kB each, with a quota for about five.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_idempotency_records_are_evicted() {
    // Compression reduces base64 to three quarters, the size of its source.
    const COMMAND: &str = "head -c 200000 /dev/urandom | base64 -w0";
    const LAST: usize = 11;
    let service =
        Service::start(&ServiceOptions::default().with("quotas", "idempotency_mb", "1")).await.unwrap();
    let (client, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    let (id, honest) = (create_sandbox(&client).await, create_sandbox(&other).await);
    let others = execute_with_key(&other, &honest, "key-0", COMMAND).await;
    let mut answers = Vec::new();
    for index in 0..=LAST {
        let answer = execute_with_key(&client, &id, &format!("key-{index}"), COMMAND).await;
        assert!(answer.status == 200 && !is_replayed(&answer), "{index}: {}", answer.status);
        answers.push(answer);
        let [used, allowed] = usage(&client, "idempotencyBytes").await;
        assert!(used <= MIB && allowed == MIB, "{index}: {used} of {allowed}");
    }
    let [used, _] = usage(&client, "idempotencyBytes").await;
    assert!(used > MIB / 2, "more than the oldest records are evicted: {used} bytes remain");
    // The newest response is replayed, also after a restart; the oldest request is executed again.
    service.restart().await.unwrap();
    let newest = execute_with_key(&client, &id, &format!("key-{LAST}"), COMMAND).await;
    assert!(is_replayed(&newest) && newest.body == answers[LAST].body);
    let oldest = execute_with_key(&client, &id, "key-0", COMMAND).await;
    assert!(oldest.status == 200 && !is_replayed(&oldest) && oldest.body != answers[0].body);
    // The records of another account stay.
    let again = execute_with_key(&other, &honest, "key-0", COMMAND).await;
    assert!(is_replayed(&again) && again.body == others.body);
}

/// A hundred commands with about 17 kB of events each, with a quota for about sixty.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_oldest_events_of_the_service_are_evicted() {
    let service = Service::start(&ServiceOptions::default().with("quotas", "events_mb", "1")).await.unwrap();
    let (client, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    let (id, honest) = (create_sandbox(&client).await, create_sandbox(&other).await);
    let posted = json!({ "type": "agent.error", "runId": "run-1" });
    client.post(&events_path(&id), &posted).await.unwrap().is(201).unwrap();
    // The start and the end of a command have its text, with two bytes for each quotation mark.
    let padding = "\"".repeat(4000);
    for index in 0..100 {
        let result =
            run_command(&client, &id, json!({ "command": format!("exit {index} #{padding}") })).await;
        assert_eq!(number(&result["exitCode"]), index);
    }
    wait_until("the last event is listed", async || {
        let path = format!("{EVENTS}?type=exec.completed&order=desc&limit=1");
        let page = client.get(&path).await.unwrap().is(200).unwrap();
        page["data"][0]["data"]["exitCode"] == 99
    })
    .await;
    let [used, allowed] = usage(&client, "eventBytes").await;
    assert!((MIB / 2..=MIB).contains(&used) && allowed == MIB, "{used} of {allowed}");
    let events = all_events(&client, EVENTS).await;
    // The posted event has its own quota and stays. The rest are the newest, without gaps.
    let (posted, rest): (Vec<&Value>, Vec<&Value>) =
        events.iter().partition(|event| event["type"] == "agent.error");
    assert_eq!(posted.len(), 1);
    assert!(rest.iter().all(|event| text(&event["type"]).starts_with("exec.")), "the lifecycle is older");
    let completed: Vec<u64> = rest
        .iter()
        .filter(|event| event["type"] == "exec.completed")
        .map(|event| number(&event["data"]["exitCode"]))
        .collect();
    assert!(completed.len() > 20 && completed.len() < 80, "{}", completed.len());
    assert_eq!(completed, (completed[0]..100).collect::<Vec<_>>());
    // Events of another account stay, and new ones are recorded.
    let theirs = all_events(&other, &events_path(&honest)).await;
    assert_eq!(theirs[0]["type"], "sandbox.created");
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let last = client.get(&format!("{EVENTS}?order=desc&limit=1")).await.unwrap().is(200).unwrap();
    assert_eq!(last["data"][0]["type"], "sandbox.terminated");
}
