//! The field `image` of a create: names in the catalogue, unknown names, and images that must be pulled first.

use std::time::{Duration, Instant};

use e2e::registry::{SlowRegistry, tiny_root};
use e2e::service::{Client, Service, ServiceOptions};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{SANDBOXES, keys, number, output, text, time, user, wait_until};

#[tokio::test]
async fn unknown_names_are_refused_and_known_ones_listed() {
    let (_service, client) = user().await;
    for image in
        ["no-such:image", "ubuntu", "ubuntu:24.04 ", "UBUNTU:24.04", "localhost/x:1", "../../etc", "-x"]
    {
        let answer = client.post(SANDBOXES, &json!({ "image": image })).await.unwrap();
        let error = answer.error(400, "INVALID_CONFIG").unwrap_or_else(|e| panic!("{image}: {e:#}"));
        let message = text(&error["message"]);
        assert!(message.contains("image"), "{message}");
    }
    let answer = client.post(SANDBOXES, &json!({ "image": "no-such:image" })).await.unwrap();
    let message = text(&answer.error(400, "INVALID_CONFIG").unwrap()["message"]);
    for known in ["no-such:image", "node:22", "python:3.12", "ubuntu:24.04"] {
        assert!(message.contains(known), "{message:?} does not name {known}");
    }
}

#[tokio::test]
async fn custom_has_no_source_by_default() {
    let (_service, client) = user().await;
    let answer = client.post(SANDBOXES, &json!({ "image": "custom" })).await.unwrap();
    let message = text(&answer.error(400, "INVALID_CONFIG").unwrap()["message"]);
    assert!(message.contains("custom"), "{message}");
}

#[tokio::test]
async fn a_missing_image_is_pulled_first() {
    let root = tempfile::tempdir().unwrap();
    tiny_root(root.path()).unwrap();
    let mut options = ServiceOptions::default()
        .image("custom", &format!("rootfs:{}", root.path().display()))
        .image("gone:1", &format!("rootfs:{}/not/there", root.path().display()));
    options.own_images = true;
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    // Concurrent creates share one pull.
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.post(SANDBOXES, &json!({ "image": "custom" })).await.unwrap() })
        })
        .collect();
    for call in calls {
        let sandbox = call.await.unwrap().is(201).unwrap();
        assert_eq!(sandbox["image"], "custom");
        assert_eq!(
            output(&client, &text(&sandbox["id"]), "echo from $BASH").await.split('/').next(),
            Some("from ")
        );
    }
    // An image whose source has nothing is refused and leaves no record.
    let answer = client.post(SANDBOXES, &json!({ "image": "gone:1" })).await.unwrap();
    let message = text(&answer.error(400, "INVALID_CONFIG").unwrap()["message"]);
    assert!(message.contains("gone:1"), "{message}");
    assert_eq!(client.get(SANDBOXES).await.unwrap().is(200).unwrap()["pagination"]["total"], 4);
}

/// A pull that takes longer than a client may wait is answered with 503 and continues.
#[tokio::test]
async fn a_slow_pull_is_answered_after_25_seconds() {
    // A registry that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let registry = silent.local_addr().unwrap();
    let options = ServiceOptions::default().image("slow:1", &format!("localhost:{}/slow:1", registry.port()));
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let begin = Instant::now();
    let answer = client.post(SANDBOXES, &json!({ "image": "slow:1" })).await.unwrap();
    answer.error(503, "RESOURCE_EXHAUSTED").unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(28), "{took:?}");
    // Other requests are not delayed.
    let begin = Instant::now();
    client.get("/v1/health").await.unwrap().is(200).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(1));
}

/// The images of a query.
async fn images(client: &Client, query: &str) -> Vec<Value> {
    let list = client.get(&format!("/v1/images{query}")).await.unwrap().is(200).unwrap();
    let data = list["data"].as_array().unwrap().clone();
    assert_eq!(list["pagination"]["total"], data.len());
    data
}

/// All accounts see the progress of a pull and the pulled image.
#[tokio::test]
async fn the_progress_of_a_pull_is_shown() {
    let registry = SlowRegistry::start().await.unwrap();
    let mut options = ServiceOptions::default().image("slow:1", &registry.reference);
    options.own_images = true;
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let other = service.account().await.unwrap();
    assert!(images(&client, "?name=slow:1").await.is_empty());
    let creator = client.with_own_connections();
    let create =
        tokio::spawn(async move { creator.post(SANDBOXES, &json!({ "image": "slow:1" })).await.unwrap() });
    let mut image = Value::Null;
    wait_until("half of the layer is pulled", async || {
        image = images(&other, "?name=slow%3A1").await.pop().unwrap_or_default();
        image["progress"]["doneBytes"].as_u64().is_some_and(|done| done > registry.layer_bytes / 4)
    })
    .await;
    assert_eq!(keys(&image), ["name", "progress", "status"]);
    assert_eq!((text(&image["name"]), text(&image["status"])), ("slow:1".into(), "pulling".into()));
    let progress = &image["progress"];
    assert_eq!(keys(progress), ["doneBytes", "stage", "totalBytes"]);
    let (done, total) = (number(&progress["doneBytes"]), number(&progress["totalBytes"]));
    assert_eq!(progress["stage"], "fetching");
    // The total includes the image's configuration.
    assert!(done < total && total >= registry.layer_bytes, "{progress}");
    assert_eq!(images(&client, "").await.len(), 1);
    registry.release();
    let sandbox = create.await.unwrap().is(201).unwrap();
    assert_eq!(output(&client, &text(&sandbox["id"]), "echo made").await, "made\n");
    let ready = images(&other, "").await.pop().unwrap();
    assert_eq!(keys(&ready), ["createdAt", "digest", "name", "sizeBytes", "status"]);
    assert_eq!((text(&ready["status"]), text(&ready["digest"])), ("ready".into(), registry.digest.clone()));
    assert!(
        number(&ready["sizeBytes"]) > 0 && time(&ready["createdAt"]) > time(&sandbox["createdAt"]) - 600_000
    );
}
