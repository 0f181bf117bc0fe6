//! The list of sandboxes: filters and pages.

use std::collections::BTreeSet;

use e2e::service::Client;
use serde_json::{Value, json};

use crate::{SANDBOXES, action_path, create_sandbox, ids, sandbox_path, small, text, time, user, with};

async fn list(client: &Client, query: &str) -> Value {
    client
        .get(&format!("{SANDBOXES}?{query}"))
        .await
        .unwrap()
        .is(200)
        .unwrap_or_else(|e| panic!("{query}: {e:#}"))
}

#[tokio::test]
async fn the_list_is_newest_first_and_paged() {
    let (_service, client) = user().await;
    let empty = list(&client, "").await;
    assert_eq!(
        empty,
        json!({ "data": [], "pagination": { "total": 0, "limit": 20, "offset": 0, "hasMore": false } })
    );
    let mut sandboxes = Vec::new();
    for _ in 0..7 {
        sandboxes.push(create_sandbox(&client).await);
    }
    client.delete(&sandbox_path(&sandboxes[3])).await.unwrap().is(200).unwrap();
    sandboxes.reverse();
    let all = list(&client, "").await;
    assert_eq!(ids(&all), sandboxes);
    let times: Vec<u64> =
        all["data"].as_array().unwrap().iter().map(|item| time(&item["createdAt"])).collect();
    assert!(times.is_sorted_by(|a, b| a >= b), "{times:?}");
    for limit in [1, 2, 3, 6, 7, 8, 100] {
        let mut seen = Vec::new();
        loop {
            let page = list(&client, &format!("limit={limit}&offset={}", seen.len())).await;
            let pagination = &page["pagination"];
            assert_eq!(pagination["total"], 7);
            assert_eq!((&pagination["limit"], &pagination["offset"]), (&json!(limit), &json!(seen.len())));
            seen.extend(ids(&page));
            assert_eq!(pagination["hasMore"], json!(seen.len() < 7));
            if pagination["hasMore"] == false {
                break;
            }
        }
        assert_eq!(seen, sandboxes, "pages of {limit}");
    }
    let past = list(&client, "offset=7").await;
    assert_eq!((ids(&past).len(), &past["pagination"]["total"]), (0, &json!(7)));
    assert_eq!(list(&client, "offset=9007199254740991").await["pagination"]["hasMore"], false);
}

#[tokio::test]
async fn filters_apply_alone_and_combined() {
    let (_service, client) = user().await;
    let mut sandboxes = Vec::new();
    for (user, tier) in [("ann", "free"), ("ann", "paid"), ("böb & co=1", "free"), ("", "free")] {
        let body = with(small(), "metadata", json!({ "userId": user, "tier": tier, "a.b c": user }));
        sandboxes.push(text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]));
    }
    client.post_empty(&action_path(&sandboxes[1], "pause")).await.unwrap().is(200).unwrap();
    client.delete(&sandbox_path(&sandboxes[3])).await.unwrap().is(200).unwrap();
    for (query, expected) in [
        ("state=running", vec![0, 2]),
        ("state=paused", vec![1]),
        ("state=terminated", vec![3]),
        ("image=ubuntu:24.04", vec![0, 1, 2, 3]),
        ("image=ubuntu%3A24.04", vec![0, 1, 2, 3]),
        ("image=node:22", vec![]),
        ("image=no-such", vec![]),
        ("metadata.userId=ann", vec![0, 1]),
        ("metadata.userId=ANN", vec![]),
        ("metadata.userId=an", vec![]),
        ("metadata.userId=", vec![3]),
        ("metadata.userId=b%C3%B6b+%26%20co%3D1", vec![2]),
        ("metadata.a.b%20c=ann", vec![0, 1]),
        ("metadata.nothing=ann", vec![]),
        ("metadata.userId=ann&metadata.tier=free", vec![0]),
        ("metadata.tier=free&state=running", vec![0, 2]),
        ("metadata.tier=free&state=running&image=ubuntu:24.04&metadata.userId=ann", vec![0]),
        ("colour=red&state=paused", vec![1]),
    ] {
        let found = list(&client, query).await;
        let expected: BTreeSet<&String> =
            expected.into_iter().map(|index: usize| &sandboxes[index]).collect();
        let actual = ids(&found);
        assert_eq!(actual.iter().collect::<BTreeSet<_>>(), expected, "{query}");
        assert_eq!(found["pagination"]["total"], json!(expected.len()), "{query}");
    }
    let page = list(&client, "metadata.tier=free&limit=1&offset=1").await;
    assert_eq!(page["pagination"], json!({ "total": 3, "limit": 1, "offset": 1, "hasMore": true }));
    assert_eq!(ids(&page), [sandboxes[2].clone()]);
}

#[tokio::test]
async fn invalid_values_are_invalid_request_and_named() {
    let (_service, client) = user().await;
    for (query, expected_text) in [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=abc", "limit"),
        ("limit=", "limit"),
        ("limit=1.5", "limit"),
        ("limit=1e1", "limit"),
        ("limit=%2B5", "limit"),
        ("limit=99999999999999999999999", "limit"),
        ("offset=-1", "offset"),
        ("offset=x", "offset"),
        ("offset=18446744073709551616", "offset"),
        ("state=creating", "state"),
        ("state=RUNNING", "state"),
        ("state=", "state"),
        ("state=running&state=paused", "state"),
        ("limit=5&limit=5", "limit"),
        ("metadata.k=1&metadata.k=2", "metadata.k"),
        ("metadata.=x", "metadata"),
    ] {
        let answer = client.get(&format!("{SANDBOXES}?{query}")).await.unwrap();
        let error = answer.error(400, "INVALID_REQUEST").unwrap_or_else(|e| panic!("{query}: {e:#}"));
        assert!(text(&error["message"]).contains(expected_text), "{query}: {error}");
    }
}

#[tokio::test]
async fn changes_are_in_the_list_immediately() {
    let (_service, client) = user().await;
    for round in 1..=5 {
        let id = create_sandbox(&client).await;
        let all = list(&client, "state=running").await;
        assert_eq!(ids(&all), std::slice::from_ref(&id));
        client.post_empty(&action_path(&id, "pause")).await.unwrap().is(200).unwrap();
        assert_eq!(ids(&list(&client, "state=paused").await), std::slice::from_ref(&id));
        assert_eq!(list(&client, "state=running").await["pagination"]["total"], 0);
        client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
        assert_eq!(list(&client, "state=terminated").await["pagination"]["total"], round);
    }
}

#[tokio::test]
async fn an_account_sees_only_its_own_sandboxes() {
    let (service, client) = user().await;
    let other = service.account().await.unwrap();
    let mine = create_sandbox(&client).await;
    let theirs = create_sandbox(&other).await;
    assert_eq!(ids(&list(&client, "").await), [mine]);
    assert_eq!(ids(&list(&other, "").await), [theirs]);
}
