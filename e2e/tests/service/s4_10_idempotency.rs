//! Section 4.10: a repeated request with the same key returns the first answer (decision 19), whatever comes between.

use std::sync::Arc;

use e2e::service::{Answer, Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::{Value, json};

use crate::{NOBODY, SANDBOXES, at, created, output, small, text, user, verb, with};

async fn keyed(client: &Client, path: &str, key: &str, body: &Value) -> Answer {
    client.call(Method::POST, path).header("idempotency-key", key).json(body).send().await.unwrap()
}

fn replayed(answer: &Answer) -> bool {
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
async fn the_same_key_and_body_return_the_first_answer() {
    let (_service, client) = user().await;
    let first = keyed(&client, SANDBOXES, "key-1", &small()).await;
    assert!(!replayed(&first));
    let id = text(&first.is(201).unwrap()["id"]);
    // The original answer, also when the sandbox has changed since.
    client.order(&verb(&id, "pause")).await.unwrap().is(200).unwrap();
    let second = keyed(&client, SANDBOXES, "key-1", &small()).await;
    assert!(replayed(&second));
    assert_eq!((second.status, &second.body), (first.status, &first.body));
    assert_ne!(second.header("x-request-id"), first.header("x-request-id"));
    client.delete(&at(&id)).await.unwrap().is(200).unwrap();
    let third = keyed(&client, SANDBOXES, "key-1", &small()).await;
    assert_eq!((third.status, &third.body), (201, &first.body));
    assert_eq!(total(&client).await, 1);
    // Without a key, and with another, there are more.
    let other = keyed(&client, SANDBOXES, "key-2", &small()).await;
    assert_ne!(other.is(201).unwrap()["id"], id.as_str());
    created(&client).await;
    assert_eq!(total(&client).await, 3);
}

#[tokio::test]
async fn the_same_key_with_another_body_is_refused() {
    let (_service, client) = user().await;
    keyed(&client, SANDBOXES, "key", &small()).await.is(201).unwrap();
    let other = with(small(), "timeoutMs", json!(7_000_000));
    let error = keyed(&client, SANDBOXES, "key", &other).await.error(400, "INVALID_REQUEST").unwrap();
    assert!(text(&error["message"]).contains("Idempotency-Key"), "{error}");
    assert_eq!(total(&client).await, 1);
    // The first answer is still there for the first body.
    assert!(replayed(&keyed(&client, SANDBOXES, "key", &small()).await));
}

#[tokio::test]
async fn keys_are_1_to_255_visible_characters() {
    let (service, client) = user().await;
    let longest = "k".repeat(255);
    let body = json!({ "image": 5 });
    for key in ["x", "8e03978e-40d5-43dd-bc93-6894a57f9324", "!~\"{}", &longest] {
        keyed(&client, SANDBOXES, key, &body).await.error(400, "INVALID_REQUEST").unwrap();
        assert!(replayed(&keyed(&client, SANDBOXES, key, &body).await), "{key}");
    }
    let too_long = "k".repeat(256);
    for key in ["", "a b", &too_long, "ümlaut"] {
        let error = keyed(&client, SANDBOXES, key, &small()).await.error(400, "INVALID_REQUEST").unwrap();
        assert!(text(&error["message"]).contains("Idempotency-Key"), "{error}");
    }
    assert_eq!(total(&client).await, 0);
    // Two are no key.
    let call =
        client.call(Method::POST, SANDBOXES).header("idempotency-key", "a").header("idempotency-key", "b");
    call.json(&small()).send().await.unwrap().error(400, "INVALID_REQUEST").unwrap();
    // Another account's key of the same name is another key.
    let stranger = service.account().await.unwrap();
    let mine = keyed(&client, SANDBOXES, "shared", &small()).await;
    let theirs = keyed(&stranger, SANDBOXES, "shared", &small()).await;
    assert!(!replayed(&theirs));
    assert_ne!(mine.is(201).unwrap()["id"], theirs.is(201).unwrap()["id"]);
}

#[tokio::test]
async fn ten_at_once_make_one() {
    let (_service, client) = user().await;
    for round in 0..5 {
        let key = format!("round-{round}");
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (client, key) = (client.clone(), key.clone());
                tokio::spawn(async move { keyed(&client, SANDBOXES, &key, &small()).await })
            })
            .collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.unwrap());
        }
        let firsts = answers.iter().filter(|answer| !replayed(answer)).count();
        assert_eq!(firsts, 1, "{firsts} were carried out");
        for answer in &answers {
            assert_eq!((answer.status, &answer.body), (201, &answers[0].body));
        }
        assert_eq!(total(&client).await, round + 1);
    }
}

/// Errors of the client are kept, with the id of the present request in them.
#[tokio::test]
async fn refusals_are_kept_too() {
    let (_service, client) = user().await;
    let body = json!({ "image": "no-such:image" });
    let first = keyed(&client, SANDBOXES, "key", &body).await;
    let second = keyed(&client, SANDBOXES, "key", &body).await;
    assert!(!replayed(&first) && replayed(&second));
    let (mut one, mut two) =
        (first.error(400, "INVALID_CONFIG").unwrap(), second.error(400, "INVALID_CONFIG").unwrap());
    assert_ne!(one["requestId"].take(), two["requestId"].take());
    assert_eq!(one, two);
}

#[tokio::test]
async fn what_may_be_otherwise_next_time_is_not_kept() {
    let options = ServiceOptions::default().with("capacity", "memory_mb", "2048").with(
        "capacity",
        "overcommit_memory",
        "1.0",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = created(&client).await;
    keyed(&client, SANDBOXES, "key", &small()).await.error(503, "RESOURCE_EXHAUSTED").unwrap();
    client.delete(&at(&id)).await.unwrap().is(200).unwrap();
    let answer = keyed(&client, SANDBOXES, "key", &small()).await;
    answer.is(201).unwrap();
    assert!(!replayed(&answer));
}

#[tokio::test]
async fn a_buffered_command_runs_once_for_its_key() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    let path = verb(&id, "execute");
    let body = json!({ "command": "echo x >> /count; sleep 0.2; wc -l < /count; exit 4" });
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let (client, path, body) = (client.clone(), path.clone(), body.clone());
            tokio::spawn(async move { keyed(&client, &path, "once", &body).await })
        })
        .collect();
    for call in calls {
        let result = call.await.unwrap().is(200).unwrap();
        assert_eq!((&result["stdout"], &result["exitCode"]), (&json!("1\n"), &json!(4)));
    }
    assert_eq!(output(&client, &id, "cat /count").await, "x\n");
    // The key belongs to the endpoint: elsewhere it is new.
    assert!(!replayed(&keyed(&client, SANDBOXES, "once", &small()).await));
    keyed(&client, &verb(NOBODY, "execute"), "once", &body).await.error(404, "SANDBOX_NOT_FOUND").unwrap();
}

/// A client that goes away before it is answered asks again, and finds what its first request made.
#[tokio::test]
async fn a_client_that_went_away_finds_its_sandbox() {
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
    let answer = keyed(&client, SANDBOXES, "gone", &small()).await;
    answer.is(201).unwrap();
    assert_eq!(total(&client).await, 1);
}

#[tokio::test]
async fn answers_outlive_a_restart_and_a_crash() {
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    let first = keyed(&client, SANDBOXES, "key", &small()).await;
    let id = text(&first.is(201).unwrap()["id"]);
    let command = json!({ "command": "echo x >> /count; cat /count" });
    let ran = keyed(&client, &verb(&id, "execute"), "key", &command).await;
    for crash in [false, true] {
        if crash {
            service.kill().unwrap();
            service.boot().await.unwrap();
        } else {
            service.restart().await.unwrap();
        }
        let again = keyed(&client.apart(), SANDBOXES, "key", &small()).await;
        assert!(replayed(&again));
        assert_eq!((again.status, &again.body), (201, &first.body));
        let again = keyed(&client.apart(), &verb(&id, "execute"), "key", &command).await;
        assert!(replayed(&again));
        assert_eq!((again.status, &again.body), (200, &ran.body));
    }
    assert_eq!(output(&client.apart(), &id, "cat /count").await, "x\n");
}

/// SIGKILL while ten ask: afterwards there is one sandbox at most, and the key leads to it.
#[tokio::test]
async fn a_crash_between_makes_never_two() {
    let service = Arc::new(Service::start(&ServiceOptions::default()).await.unwrap());
    let client = service.account().await.unwrap();
    for round in 0..6_u64 {
        let key = format!("round-{round}");
        let before = total(&client.apart()).await.as_u64().unwrap();
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (client, key) = (client.apart(), key.clone());
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
        service.boot().await.unwrap();
        let answer = keyed(&client.apart(), SANDBOXES, &key, &small()).await;
        let id = text(&answer.is(201).unwrap()["id"]);
        assert!(answered.is_none_or(|told| told == id), "what was answered is lost");
        assert_eq!(total(&client.apart()).await, before + 1, "round {round}");
        assert_eq!(output(&client.apart(), &id, "echo here").await, "here\n");
    }
}
