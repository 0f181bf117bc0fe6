//! Names of sandboxes: one holder at a time, also among concurrent creates and after a crash of the daemon.

use e2e::service::{Client, HttpResponse, Service, ServiceOptions, small, with};
use serde_json::{Value, json};

use crate::{SANDBOXES, action_path, sandbox_path, text, user};

fn named(name: &str) -> Value {
    with(small(), "name", json!(name))
}

async fn create(client: &Client, name: &str) -> HttpResponse {
    client.post(SANDBOXES, &named(name)).await.unwrap()
}

#[tokio::test]
async fn a_name_is_accepted_in_place_of_the_id() {
    let (_service, client) = user().await;
    let sandbox = create(&client, "web").await.is(201).unwrap();
    assert_eq!((&sandbox["name"], &sandbox["metadata"]), (&json!("web"), &json!({})));
    assert_eq!(client.get(&sandbox_path("web")).await.unwrap().is(200).unwrap(), sandbox);
    let run = json!({ "command": "echo hi" });
    let result = client.post(&action_path("web", "execute"), &run).await.unwrap().is(200).unwrap();
    assert_eq!(result["stdout"], "hi\n");
    let ended = client.delete(&sandbox_path("web")).await.unwrap().is(200).unwrap();
    assert_eq!(ended["id"], sandbox["id"]);
    client.get(&sandbox_path("web")).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    let next = create(&client, "web").await.is(201).unwrap();
    assert_ne!(next["id"], sandbox["id"]);
}

#[tokio::test]
async fn of_concurrent_creates_one_gets_the_name() {
    let (_service, client) = user().await;
    let creates = (0..6).map(|_| create(&client, "web"));
    let answers = futures_util::future::join_all(creates).await;
    let (created, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 201);
    assert_eq!((created.len(), refused.len()), (1, 5));
    for answer in refused {
        let error = answer.error(409, "INVALID_STATE").unwrap();
        assert_eq!(error["details"]["field"], "name", "{error}");
    }
    let holder = client.get(&sandbox_path("web")).await.unwrap().is(200).unwrap();
    let error = create(&client, "web").await.error(409, "INVALID_STATE").unwrap();
    assert_eq!(error["details"]["sandboxId"], holder["id"]);
    assert!(text(&error["message"]).contains(&text(&holder["id"])), "{error}");
}

#[tokio::test]
async fn a_name_survives_a_crash_and_belongs_to_one_account() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let (one, two) = (service.account().await.unwrap(), service.account().await.unwrap());
    let sandbox = create(&one, "web").await.is(201).unwrap();
    two.get(&sandbox_path("web")).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    let other = create(&two, "web").await.is(201).unwrap();
    service.kill().unwrap();
    service.start_process().await.unwrap();
    for (client, expected) in [(one.with_own_connections(), &sandbox), (two.with_own_connections(), &other)] {
        let found = client.get(&sandbox_path("web")).await.unwrap().is(200).unwrap();
        assert_eq!(found["id"], expected["id"]);
        let error = create(&client, "web").await.error(409, "INVALID_STATE").unwrap();
        assert_eq!(error["details"]["sandboxId"], expected["id"]);
        client.delete(&sandbox_path("web")).await.unwrap().is(200).unwrap();
        create(&client, "web").await.is(201).unwrap();
    }
}
