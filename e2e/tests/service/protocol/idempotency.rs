//! Idempotency keys: a repeated request with the same key returns the first response.

use std::sync::Arc;

use e2e::service::{Client, HttpResponse, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::{
    SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, output, sandbox_path, small, text, user, with,
};

async fn post_with_key(client: &Client, path: &str, key: &str, body: &Value) -> HttpResponse {
    client.call(Method::POST, path).header("idempotency-key", key).json(body).send().await.unwrap()
}

fn replayed(answer: &HttpResponse) -> bool {
    match answer.header("idempotency-replayed") {
        None => false,
        Some(value) => {
            assert_eq!(value, "true");
            true
        }
    }
}

async fn total(client: &Client) -> Value {
    client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"].clone()
}

#[tokio::test]
async fn the_same_key_and_body_return_the_first_response() {
    let (_service, client) = user().await;
    let first = post_with_key(&client, SANDBOXES, "key-1", &small()).await;
    assert!(!replayed(&first));
    let id = text(&first.is(201).unwrap()["id"]);
    // The original response, even if the sandbox has changed since.
    client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
    let second = post_with_key(&client, SANDBOXES, "key-1", &small()).await;
    assert!(replayed(&second));
    assert_eq!((second.status, &second.body), (first.status, &first.body));
    assert_ne!(second.header("x-request-id"), first.header("x-request-id"));
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let third = post_with_key(&client, SANDBOXES, "key-1", &small()).await;
    assert_eq!((third.status, &third.body), (201, &first.body));
    assert_eq!(total(&client).await, 1);
    // Without a key, and with another key, further sandboxes are created.
    let other = post_with_key(&client, SANDBOXES, "key-2", &small()).await;
    assert_ne!(other.is(201).unwrap()["id"], id.as_str());
    create_sandbox(&client).await;
    assert_eq!(total(&client).await, 3);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let (_service, client) = user().await;
    post_with_key(&client, SANDBOXES, "key", &small()).await.is(201).unwrap();
    let other = with(small(), "timeoutMs", json!(7_000_000));
    let error = post_with_key(&client, SANDBOXES, "key", &other).await.error(400, "INVALID_REQUEST").unwrap();
    assert!(text(&error["message"]).contains("Idempotency-Key"), "{error}");
    assert_eq!(total(&client).await, 1);
    // The first response is still returned for the first body.
    assert!(replayed(&post_with_key(&client, SANDBOXES, "key", &small()).await));
}

#[tokio::test]
async fn keys_are_1_to_255_visible_characters() {
    let (service, client) = user().await;
    let longest = "k".repeat(255);
    let body = json!({ "image": 5 });
    for key in ["x", "8e03978e-40d5-43dd-bc93-6894a57f9324", "!~\"{}", &longest] {
        post_with_key(&client, SANDBOXES, key, &body).await.error(400, "INVALID_REQUEST").unwrap();
        assert!(replayed(&post_with_key(&client, SANDBOXES, key, &body).await), "{key}");
    }
    let too_long = "k".repeat(256);
    for key in ["", "a b", &too_long, "ümlaut"] {
        let error =
            post_with_key(&client, SANDBOXES, key, &small()).await.error(400, "INVALID_REQUEST").unwrap();
        assert!(text(&error["message"]).contains("Idempotency-Key"), "{error}");
    }
    assert_eq!(total(&client).await, 0);
    // Two keys are invalid.
    let call =
        client.call(Method::POST, SANDBOXES).header("idempotency-key", "a").header("idempotency-key", "b");
    call.json(&small()).send().await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    // Keys of different accounts are independent.
    let other = service.account().await.unwrap();
    let mine = post_with_key(&client, SANDBOXES, "shared", &small()).await;
    let theirs = post_with_key(&other, SANDBOXES, "shared", &small()).await;
    assert!(!replayed(&theirs));
    assert_ne!(mine.is(201).unwrap()["id"], theirs.is(201).unwrap()["id"]);
}

#[tokio::test]
async fn ten_concurrent_requests_with_one_key_create_one_sandbox() {
    let (_service, client) = user().await;
    for round in 0..5 {
        let key = format!("round-{round}");
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (client, key) = (client.clone(), key.clone());
                tokio::spawn(async move { post_with_key(&client, SANDBOXES, &key, &small()).await })
            })
            .collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap());
        }
        let firsts = answers.iter().filter(|answer| !replayed(answer)).count();
        assert_eq!(firsts, 1, "{firsts} were executed");
        for answer in &answers {
            assert_eq!((answer.status, &answer.body), (201, &answers[0].body));
        }
        assert_eq!(total(&client).await, round + 1);
    }
}

/// Client errors are stored too; a replay has the id of the present request.
#[tokio::test]
async fn client_errors_are_replayed_too() {
    let (_service, client) = user().await;
    let body = json!({ "image": "no-such:image" });
    let first = post_with_key(&client, SANDBOXES, "key", &body).await;
    let second = post_with_key(&client, SANDBOXES, "key", &body).await;
    assert!(!replayed(&first) && replayed(&second));
    let (mut one, mut two) =
        (first.error(400, "INVALID_CONFIG").unwrap(), second.error(400, "INVALID_CONFIG").unwrap());
    assert_ne!(one["requestId"].take(), two["requestId"].take());
    assert_eq!(one, two);
}

#[tokio::test]
async fn transient_errors_are_not_stored() {
    let options = ServiceOptions::default().with("capacity", "memory_mb", "2048").with(
        "capacity",
        "overcommit_memory",
        "1.0",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    post_with_key(&client, SANDBOXES, "key", &small()).await.error(503, "RESOURCE_EXHAUSTED").unwrap();
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
    let answer = post_with_key(&client, SANDBOXES, "key", &small()).await;
    answer.is(201).unwrap();
    assert!(!replayed(&answer));
}

#[tokio::test]
async fn a_buffered_command_runs_once_for_its_key() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let path = action_path(&id, "execute");
    let body = json!({ "command": "echo x >> /count; sleep 0.2; wc -l < /count; exit 4" });
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let (client, path, body) = (client.clone(), path.clone(), body.clone());
            tokio::spawn(async move { post_with_key(&client, &path, "once", &body).await })
        })
        .collect();
    for call in calls {
        let result = call.await.unwrap().is(200).unwrap();
        assert_eq!((&result["stdout"], &result["exitCode"]), (&json!("1\n"), &json!(4)));
    }
    assert_eq!(output(&client, &id, "cat /count").await, "x\n");
    // The key scope includes the endpoint.
    assert!(!replayed(&post_with_key(&client, SANDBOXES, "once", &small()).await));
    post_with_key(&client, &action_path(UNKNOWN_ID, "execute"), "once", &body)
        .await
        .error(404, "SANDBOX_NOT_FOUND")
        .unwrap();
}

/// A client that disconnected before the response can repeat the request and gets the sandbox of the first one.
#[tokio::test]
async fn a_client_that_disconnected_gets_its_sandbox() {
    let (service, client) = user().await;
    let body = small().to_string();
    let request = format!(
        "POST {SANDBOXES} HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\nContent-Type: application/json\r\n\
         Idempotency-Key: gone\r\nContent-Length: {}\r\n\r\n{body}",
        client.authorization(),
        body.len()
    );
    for _ in 0..3 {
        let mut raw = service.raw().await.unwrap();
        assert!(raw.write(request.as_bytes()).await);
    }
    let answer = post_with_key(&client, SANDBOXES, "gone", &small()).await;
    answer.is(201).unwrap();
    assert_eq!(total(&client).await, 1);
}

#[tokio::test]
async fn stored_responses_survive_a_restart_and_a_kill() {
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let first = post_with_key(&client, SANDBOXES, "key", &small()).await;
    let id = text(&first.is(201).unwrap()["id"]);
    let command = json!({ "command": "echo x >> /count; cat /count" });
    let ran = post_with_key(&client, &action_path(&id, "execute"), "key", &command).await;
    for crash in [false, true] {
        if crash {
            service.kill().unwrap();
            service.start_process().await.unwrap();
        } else {
            service.restart().await.unwrap();
        }
        let again = post_with_key(&client.with_own_connections(), SANDBOXES, "key", &small()).await;
        assert!(replayed(&again));
        assert_eq!((again.status, &again.body), (201, &first.body));
        let again =
            post_with_key(&client.with_own_connections(), &action_path(&id, "execute"), "key", &command)
                .await;
        assert!(replayed(&again));
        assert_eq!((again.status, &again.body), (200, &ran.body));
    }
    assert_eq!(output(&client.with_own_connections(), &id, "cat /count").await, "x\n");
}

/// After SIGKILL during ten concurrent requests with one key, there is exactly one sandbox for the key.
#[tokio::test]
async fn a_kill_during_requests_creates_one_sandbox_per_key() {
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    for round in 0..6_u64 {
        let key = format!("round-{round}");
        let before = total(&client.with_own_connections()).await.as_u64().unwrap();
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (client, key) = (client.with_own_connections(), key.clone());
                let call = async move {
                    client
                        .call(Method::POST, SANDBOXES)
                        .header("idempotency-key", &key)
                        .json(&small())
                        .send()
                        .await
                        .ok()
                };
                tokio::spawn(call)
            })
            .collect();
        tokio::time::sleep(std::time::Duration::from_millis(15 * round)).await;
        service.kill().unwrap();
        let mut answered = None;
        for call in calls {
            if let Some(answer) = call.await.unwrap() {
                answered = Some(text(&answer.is(201).unwrap()["id"]));
            }
        }
        service.start_process().await.unwrap();
        let answer = post_with_key(&client.with_own_connections(), SANDBOXES, &key, &small()).await;
        let id = text(&answer.is(201).unwrap()["id"]);
        assert!(answered.is_none_or(|answered| answered == id), "an acknowledged sandbox is lost");
        assert_eq!(total(&client.with_own_connections()).await, before + 1, "round {round}");
        assert_eq!(output(&client.with_own_connections(), &id, "echo here").await, "here\n");
    }
}
