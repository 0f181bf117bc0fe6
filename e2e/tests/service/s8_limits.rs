//! Section 8: every rate to the request, its headers, and that `Retry-After` is true (decision 21).
//!
//! The window is a minute, so the tests that wait for its end do that once each, side by side.

use std::time::{Duration, Instant};

use e2e::service::{Answer, Client, Service, ServiceOptions};
use hyper::Method;
use serde_json::json;

use crate::{NOBODY, SANDBOXES, at, created, now_ms, small, text, verb};

/// Limit, remaining, seconds until the reset.
fn shown(answer: &Answer) -> (u64, u64, u64) {
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

/// Four keys hammer each its own limit from several connections: each gets exactly its number. Then one waits as long as it
/// is told, and has them again.
#[tokio::test]
async fn four_keys_hammering_get_each_exactly_their_number() {
    let options = ServiceOptions::default().with("limits", "read_per_minute", "25");
    let service = Service::new(&options).unwrap();
    let keys: Vec<String> = (0..4).map(|n| service.key(&format!("hammer-{n}"), "read").unwrap()).collect();
    service.boot().await.unwrap();
    let begin = Instant::now();
    let hammers: Vec<_> = keys
        .iter()
        .flat_map(|key| {
            let client = service.client(key).unwrap();
            (0..3).map(move |_| {
                let client = client.apart();
                tokio::spawn(async move { count(&client, SANDBOXES, 40).await })
            })
        })
        .collect();
    let mut counted = Vec::new();
    for hammer in hammers {
        counted.push(hammer.await.unwrap());
    }
    assert!(begin.elapsed() < Duration::from_secs(50), "too slow to tell: {:?}", begin.elapsed());
    for (n, of_key) in counted.chunks(3).enumerate() {
        let granted: usize = of_key.iter().map(|(granted, _, _)| granted).sum();
        let refused: usize = of_key.iter().map(|(_, refused, _)| refused).sum();
        assert_eq!((granted, refused), (25, 95), "key {n}");
    }
    // Two keys of one account do not share a limit; refused ones were not counted, else this would be longer.
    let client = service.client(&keys[0]).unwrap();
    let answer = client.get(SANDBOXES).await.unwrap();
    answer.error(429, "RATE_LIMITED").unwrap();
    let wait = answer.number("retry-after").unwrap();
    let (limit, remaining, reset) = shown(&answer);
    assert_eq!((limit, remaining), (25, 0));
    assert!((1..=60).contains(&wait) && reset.abs_diff(wait) <= 1, "Retry-After {wait}, reset in {reset}");
    // A second too early it is still refused, unless the first request is that much older than the second is long.
    tokio::time::sleep(Duration::from_millis(wait * 1000)).await;
    client.get(SANDBOXES).await.unwrap().is(200).unwrap();
}

#[tokio::test]
async fn each_class_has_its_own_limit_and_shows_the_nearest_to_its_end() {
    let options = ServiceOptions::default()
        .with("limits", "read_per_minute", "30")
        .with("limits", "write_per_minute", "12")
        .with("limits", "create_per_minute", "4")
        .with("limits", "execute_per_minute", "5");
    let service = Service::new(&options).unwrap();
    let key = service.key("classes", "read,write,execute").unwrap();
    service.boot().await.unwrap();
    let client = service.client(&key).unwrap();
    let begin = Instant::now();
    // Creation counts as write and as creation; what is refused for its content counts too.
    let first = client.post(SANDBOXES, &small()).await.unwrap();
    let id = text(&first.is(201).unwrap()["id"]);
    assert_eq!(shown(&first).0, 4);
    assert_eq!(shown(&first).1, 3);
    for remaining in [2, 1, 0] {
        let answer = client.post(SANDBOXES, &json!({})).await.unwrap();
        answer.error(400, "INVALID_REQUEST").unwrap();
        assert_eq!((shown(&answer).0, shown(&answer).1), (4, remaining));
    }
    let answer = client.post(SANDBOXES, &small()).await.unwrap();
    let error = answer.error(429, "RATE_LIMITED").unwrap();
    assert!(text(&error["message"]).contains('4'), "{error}");
    // The refused creation took nothing from the writes: four of twelve are used.
    for remaining in (0..8).rev() {
        let answer = client.order(&verb(NOBODY, "pause")).await.unwrap();
        answer.error(404, "SANDBOX_NOT_FOUND").unwrap();
        assert_eq!((shown(&answer).0, shown(&answer).1), (12, remaining));
    }
    for answer in [client.order(&verb(&id, "pause")).await.unwrap(), client.delete(&at(&id)).await.unwrap()] {
        answer.error(429, "RATE_LIMITED").unwrap();
    }
    // Execution counts against its sandbox alone.
    for remaining in (0..5).rev() {
        let answer = client.post(&verb(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
        answer.is(200).unwrap();
        assert_eq!((shown(&answer).0, shown(&answer).1), (5, remaining));
    }
    let answer = client.post(&verb(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
    answer.error(429, "RATE_LIMITED").unwrap();
    // As a stream too, and for any key of the account.
    let call = client.call(Method::POST, &verb(&id, "execute")).header("accept", "text/event-stream");
    call.json(&json!({ "command": "true" })).send().await.unwrap().error(429, "RATE_LIMITED").unwrap();
    // Reads are untouched by all that.
    let answer = client.get(&at(&id)).await.unwrap();
    answer.is(200).unwrap();
    assert_eq!((shown(&answer).0, shown(&answer).1), (30, 29));
    client.get("/nowhere").await.unwrap().error(404, "NOT_FOUND").unwrap();
    assert!(begin.elapsed() < Duration::from_secs(50), "too slow to tell: {:?}", begin.elapsed());
}

#[tokio::test]
async fn the_defaults_are_those_of_the_specification() {
    let service = Service::new(&ServiceOptions::default().default_rates()).unwrap();
    let key = service.key("defaults", "admin").unwrap();
    service.boot().await.unwrap();
    let client = service.client(&key).unwrap();
    let read = client.get(SANDBOXES).await.unwrap();
    assert_eq!((shown(&read).0, shown(&read).1), (300, 299));
    let create = client.post(SANDBOXES, &small()).await.unwrap();
    assert_eq!((shown(&create).0, shown(&create).1), (10, 9));
    let id = text(&create.is(201).unwrap()["id"]);
    let write = client.order(&verb(&id, "pause")).await.unwrap();
    assert_eq!((shown(&write).0, shown(&write).1), (60, 58));
    let execute = client.post(&verb(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
    assert_eq!((shown(&execute).0, shown(&execute).1), (100, 99));
    // To the request, with the numbers of the product.
    let mut granted = 1;
    while client.post(SANDBOXES, &json!({})).await.unwrap().status == 400 {
        granted += 1;
    }
    assert_eq!(granted, 10);
    let mut reads = 1;
    while client.get(&at(&id)).await.unwrap().status == 200 {
        reads += 1;
    }
    assert_eq!(reads, 300);
}

#[tokio::test]
async fn answers_that_count_nothing_show_a_limit_untouched() {
    let options = ServiceOptions::default().with("limits", "read_per_minute", "7");
    let service = Service::new(&options).unwrap();
    let key = service.key("uncounted", "read").unwrap();
    service.boot().await.unwrap();
    let client = service.client(&key).unwrap();
    let anonymous = service.anonymous().unwrap();
    for answer in [anonymous.get("/v1/health").await.unwrap(), anonymous.get(SANDBOXES).await.unwrap()] {
        assert_eq!((shown(&answer).0, shown(&answer).1), (7, 7));
        assert!(shown(&answer).2 <= 1);
    }
    assert_eq!(shown(&client.get(SANDBOXES).await.unwrap()).1, 6);
}

/// 0 turns a limit off, and the headers say so.
#[tokio::test]
async fn no_limit_is_a_large_number() {
    let (_service, client) = crate::user().await;
    let id = created(&client).await;
    for answer in [
        client.get(&at(&id)).await.unwrap(),
        client.order(&verb(&id, "resume")).await.unwrap(),
        client.post(&verb(&id, "execute"), &json!({ "command": "true" })).await.unwrap(),
    ] {
        assert_eq!((shown(&answer).0, shown(&answer).1), (2_147_483_647, 2_147_483_647));
    }
}

/// A key that made its sandbox may not outlive it: limits of a sandbox are forgotten with it, not the key's.
#[tokio::test]
async fn limits_of_sandboxes_are_apart() {
    let options = ServiceOptions::default().with("limits", "execute_per_minute", "3");
    let service = Service::new(&options).unwrap();
    let (key, another) = (service.key("apart", "admin").unwrap(), service.key("apart", "admin").unwrap());
    service.boot().await.unwrap();
    let (client, other) = (service.client(&key).unwrap(), service.client(&another).unwrap());
    let (one, two) = (created(&client).await, created(&client).await);
    for (client, id, status) in [
        (&client, &one, 200),
        (&client, &one, 200),
        (&other, &one, 200),
        (&other, &one, 429),
        (&client, &one, 429),
        (&client, &two, 200),
        (&other, &two, 200),
    ] {
        let answer = client.post(&verb(id, "execute"), &json!({ "command": "true" })).await.unwrap();
        assert_eq!(answer.status, status, "{}", answer.text());
    }
}
