//! Rate limits are exact, with correct headers and `Retry-After`.
//!
//! The window is a minute; each test that waits for its end does so once, and the tests run in parallel.

use std::time::{Duration, Instant};

use e2e::service::{Client, HttpResponse, Service, ServiceOptions};
use hyper::Method;
use serde_json::json;

use crate::{SANDBOXES, UNKNOWN_ID, action_path, create_sandbox, now_ms, sandbox_path, small, text};

/// The rate limit headers: limit, remaining, seconds until the reset.
fn rate_headers(answer: &HttpResponse) -> (u64, u64, u64) {
    let reset = answer.number("x-ratelimit-reset").unwrap();
    let limit = answer.number("x-ratelimit-limit").unwrap();
    (limit, answer.number("x-ratelimit-remaining").unwrap(), reset.saturating_sub(now_ms() / 1000))
}

async fn count(client: &Client, path: &str, sends: usize) -> (usize, usize, u64) {
    let (mut granted, mut refused, mut wait) = (0, 0, 0);
    for _ in 0..sends {
        let answer = client.get(path).await.unwrap();
        match answer.status {
            200 => granted += 1,
            _ => {
                answer.error(429, "RATE_LIMITED").unwrap();
                refused += 1;
                wait = answer.number("retry-after").unwrap();
            }
        }
    }
    (granted, refused, wait)
}

/// Four keys exceed their limits from several connections: each gets exactly its limit. After `Retry-After`, requests are accepted
/// again.
#[tokio::test]
async fn four_concurrent_keys_get_exactly_their_limits() {
    let options = ServiceOptions::default().with("limits", "read_per_minute", "25");
    let service = Service::new(&options).unwrap();
    let keys: Vec<String> = (0..4).map(|n| service.key(&format!("hammer-{n}"), "read").unwrap()).collect();
    service.start_process().await.unwrap();
    let begin = Instant::now();
    let hammers: Vec<_> = keys
        .iter()
        .flat_map(|key| {
            let client = service.client(key).unwrap();
            (0..3).map(move |_| {
                let client = client.with_own_connections();
                tokio::spawn(async move { count(&client, SANDBOXES, 40).await })
            })
        })
        .collect();
    let mut counted = Vec::new();
    for hammer in hammers {
        counted.push(hammer.await.unwrap());
    }
    assert!(begin.elapsed() < Duration::from_secs(50), "too slow for the window: {:?}", begin.elapsed());
    for (n, of_key) in counted.chunks(3).enumerate() {
        let granted: usize = of_key.iter().map(|(granted, _, _)| granted).sum();
        let refused: usize = of_key.iter().map(|(_, refused, _)| refused).sum();
        assert_eq!((granted, refused), (25, 95), "key {n}");
    }
    // Keys do not share a limit, and refused requests are not counted; otherwise the wait would be longer.
    let client = service.client(&keys[0]).unwrap();
    let answer = client.get(SANDBOXES).await.unwrap();
    answer.error(429, "RATE_LIMITED").unwrap();
    let wait = answer.number("retry-after").unwrap();
    let (limit, remaining, reset) = rate_headers(&answer);
    assert_eq!((limit, remaining), (25, 0));
    assert!((1..=60).contains(&wait) && reset.abs_diff(wait) <= 1, "Retry-After {wait}, reset in {reset}");
    tokio::time::sleep(Duration::from_millis(wait * 1000)).await;
    client.get(SANDBOXES).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn each_class_has_its_own_limit_and_the_headers_show_the_nearest() {
    let options = ServiceOptions::default()
        .with("limits", "read_per_minute", "30")
        .with("limits", "write_per_minute", "12")
        .with("limits", "create_per_minute", "4")
        .with("limits", "execute_per_minute", "5");
    let service = Service::new(&options).unwrap();
    let key = service.key("classes", "read,write,execute").unwrap();
    service.start_process().await.unwrap();
    let client = service.client(&key).unwrap();
    let begin = Instant::now();
    // A create counts as write and as create; an invalid request counts too.
    let first = client.post(SANDBOXES, &small()).await.unwrap();
    let id = text(&first.is(201).unwrap()["id"]);
    assert_eq!(rate_headers(&first).0, 4);
    assert_eq!(rate_headers(&first).1, 3);
    for remaining in [2, 1, 0] {
        let answer = client.post(SANDBOXES, &json!({})).await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
        assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (4, remaining));
    }
    let answer = client.post(SANDBOXES, &small()).await.unwrap();
    let error = answer.error(429, "RATE_LIMITED").unwrap();
    assert!(text(&error["message"]).contains('4'), "{error}");
    // The refused create does not count as write: four of twelve are used.
    for remaining in (0..8).rev() {
        let answer = client.post_empty(&action_path(UNKNOWN_ID, "pause")).await.unwrap();
        answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
        assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (12, remaining));
    }
    let refused = client.post_empty(&action_path(&id, "pause")).await.unwrap();
    let error = refused.error(429, "RATE_LIMITED").unwrap();
    assert_eq!(
        (&error["details"]["limit"], &error["details"]["value"], &error["details"]["key"]),
        (&json!("writes per minute"), &json!(12), &json!("limits.write_per_minute"))
    );
    assert_eq!(error["details"]["retryAfter"], refused.number("retry-after").unwrap());
    // Other writes refuse no termination.
    let answer = client.delete(&sandbox_path(UNKNOWN_ID)).await.unwrap();
    answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (12, 11));
    // Executions count per sandbox.
    for remaining in (0..5).rev() {
        let answer = client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
        answer.is(200).unwrap();
        assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (5, remaining));
    }
    let answer = client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
    answer.error(429, "RATE_LIMITED").unwrap();
    // Streams are counted too.
    let call = client.call(Method::POST, &action_path(&id, "execute")).header("accept", "text/event-stream");
    call.json(&json!({ "command": "true" })).send().await.unwrap().error(429, "RATE_LIMITED").unwrap();
    // Reads are not affected.
    let answer = client.get(&sandbox_path(&id)).await.unwrap();
    answer.is(200).unwrap();
    assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (30, 29));
    client.get("/nowhere").await.unwrap().error(404, "NOT_FOUND").unwrap();
    assert!(begin.elapsed() < Duration::from_secs(50), "too slow for the window: {:?}", begin.elapsed());
}

#[tokio::test]
async fn the_default_limits_apply() {
    let service = Service::new(&ServiceOptions::default().default_rates()).unwrap();
    let key = service.key("defaults", "admin").unwrap();
    service.start_process().await.unwrap();
    let client = service.client(&key).unwrap();
    let read = client.get(SANDBOXES).await.unwrap();
    assert_eq!((rate_headers(&read).0, rate_headers(&read).1), (300, 299));
    let create = client.post(SANDBOXES, &small()).await.unwrap();
    assert_eq!((rate_headers(&create).0, rate_headers(&create).1), (10, 9));
    let id = text(&create.is(201).unwrap()["id"]);
    let write = client.post_empty(&action_path(&id, "pause")).await.unwrap();
    assert_eq!((rate_headers(&write).0, rate_headers(&write).1), (60, 58));
    let execute = client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
    assert_eq!((rate_headers(&execute).0, rate_headers(&execute).1), (100, 99));
    // The defaults are exact.
    let mut granted = 1;
    while client.post(SANDBOXES, &json!({})).await.unwrap().status == 400 {
        granted += 1;
    }
    assert_eq!(granted, 10);
    let mut reads = 1;
    while client.get(&sandbox_path(&id)).await.unwrap().status == 200 {
        reads += 1;
    }
    assert_eq!(reads, 300);
}

#[tokio::test]
async fn uncounted_requests_show_the_full_limit() {
    let options = ServiceOptions::default().with("limits", "read_per_minute", "7");
    let service = Service::new(&options).unwrap();
    let key = service.key("uncounted", "read").unwrap();
    service.start_process().await.unwrap();
    let client = service.client(&key).unwrap();
    let anonymous = service.anonymous().unwrap();
    for answer in [anonymous.get("/v1/health").await.unwrap(), anonymous.get(SANDBOXES).await.unwrap()] {
        assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (7, 7));
        assert!(rate_headers(&answer).2 <= 1);
    }
    assert_eq!(rate_headers(&client.get(SANDBOXES).await.unwrap()).1, 6);
}

/// Uses of a sandbox refuse neither its termination nor other writes of the key.
#[tokio::test]
async fn operations_of_a_sandbox_have_a_limit_of_their_own() {
    let options = ServiceOptions::default().with("limits", "write_per_minute", "3").with(
        "limits",
        "operate_per_minute",
        "5",
    );
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let (one, two) = (create_sandbox(&client).await, create_sandbox(&client).await);
    let list = |id: &str| format!("{}?path=/", action_path(id, "files/list"));
    for remaining in (0..5).rev() {
        let answer = client.get(&list(&one)).await.unwrap();
        answer.is(200).unwrap();
        assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (5, remaining));
    }
    for refused in [
        client.get(&list(&one)).await.unwrap(),
        client.post(&action_path(&one, "terminals"), &json!({})).await.unwrap(),
        client.get(&action_path(&one, "executions")).await.unwrap(),
    ] {
        let error = refused.error(429, "RATE_LIMITED").unwrap();
        assert_eq!(error["details"]["key"], "limits.operate_per_minute");
    }
    client.get(&list(&two)).await.unwrap().is(200).unwrap();
    client.post_empty(&action_path(&one, "pause")).await.unwrap().is(200).unwrap();
    client.post_empty(&action_path(&two, "pause")).await.unwrap().error(429, "RATE_LIMITED").unwrap();
    for id in [&one, &two] {
        client.delete(&sandbox_path(id)).await.unwrap().is(200).unwrap();
    }
}

/// A key has the limits of its account, or its own.
#[tokio::test]
async fn accounts_and_keys_have_limits_of_their_own() {
    let options = ServiceOptions::default().with("limits", "read_per_minute", "4").with(
        "limits",
        "accounts.\"large\"",
        "{ read_per_minute = 9 }",
    );
    let service = Service::new(&options).unwrap();
    let keys: [(&str, &[&str], u64); 4] = [
        ("small", &[], 4),
        ("large", &[], 9),
        ("large", &["--limits", "none"], 2_147_483_647),
        ("small", &["--limits", "7"], 7),
    ];
    let keys = keys
        .map(|(account, arguments, limit)| (service.key_with(account, "read", arguments).unwrap(), limit));
    service.start_process().await.unwrap();
    for (key, limit) in &keys {
        let answer = service.client(key).unwrap().get(SANDBOXES).await.unwrap();
        assert_eq!(rate_headers(&answer).0, *limit);
    }
    let info = service.client(&keys[3].0).unwrap().get("/v1/info").await.unwrap().is(200).unwrap();
    assert_eq!(info["limits"]["readPerMinute"], 7);
}

/// An expired key is told apart from an unknown one.
#[tokio::test]
async fn a_key_can_expire() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = service.key_with("short", "read", &["--expires", "5s"]).unwrap();
    let client = service.client(&key).unwrap();
    client.get(SANDBOXES).await.unwrap().is(200).unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    let error = client.get(SANDBOXES).await.unwrap().error(401, "UNAUTHORIZED").unwrap();
    assert!(text(&error["message"]).starts_with("the API key expired at 20"), "{error}");
}

/// 0 turns a limit off, and the headers show a large number.
#[tokio::test]
async fn disabled_limits_show_a_large_number() {
    let (_service, client) = crate::user().await;
    let id = create_sandbox(&client).await;
    for answer in [
        client.get(&sandbox_path(&id)).await.unwrap(),
        client.post_empty(&action_path(&id, "resume")).await.unwrap(),
        client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap(),
    ] {
        assert_eq!((rate_headers(&answer).0, rate_headers(&answer).1), (2_147_483_647, 2_147_483_647));
    }
}

/// The limit of executions counts per sandbox, for all keys of the account.
#[tokio::test]
async fn execution_limits_are_per_sandbox() {
    let options = ServiceOptions::default().with("limits", "execute_per_minute", "3");
    let service = Service::new(&options).unwrap();
    let (key, another) = (service.key("apart", "admin").unwrap(), service.key("apart", "admin").unwrap());
    service.start_process().await.unwrap();
    let (client, other) = (service.client(&key).unwrap(), service.client(&another).unwrap());
    let (one, two) = (create_sandbox(&client).await, create_sandbox(&client).await);
    for (client, id, status) in [
        (&client, &one, 200),
        (&client, &one, 200),
        (&other, &one, 200),
        (&other, &one, 429),
        (&client, &one, 429),
        (&client, &two, 200),
        (&other, &two, 200),
    ] {
        let answer = client.post(&action_path(id, "execute"), &json!({ "command": "true" })).await.unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}
