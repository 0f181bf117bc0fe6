//! Section 4.3: getting one sandbox.

use hyper::Method;
use serde_json::json;

use crate::{NOBODY, at, created, user};

#[tokio::test]
async fn it_is_what_create_answered() {
    let (_service, client) = user().await;
    let sandbox = client.post(crate::SANDBOXES, &crate::small()).await.unwrap().is(201).unwrap();
    let got = client.get(&at(sandbox["id"].as_str().unwrap())).await.unwrap().is(200).unwrap();
    assert_eq!(got, sandbox);
}

#[tokio::test]
async fn an_unknown_one_carries_its_id() {
    let (_service, client) = user().await;
    let error = client.get(&at(NOBODY)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "sandboxId": NOBODY }));
}

#[tokio::test]
async fn other_methods_are_named_as_not_allowed() {
    let (_service, client) = user().await;
    let id = created(&client).await;
    for method in [Method::PUT, Method::PATCH, Method::POST] {
        let answer = client.call(method, &at(&id)).send().await.unwrap();
        answer.error(405, "METHOD_NOT_ALLOWED").unwrap();
        let allow = answer.header("allow").unwrap();
        assert!(allow.contains("GET") && allow.contains("DELETE"), "{allow}");
    }
    // The path is what it is: no slash more, no letter in another case.
    for path in [format!("{}/", at(&id)), format!("/V1/sandboxes/{id}"), format!("/v1//sandboxes/{id}")] {
        client.get(&path).await.unwrap().error(404, "NOT_FOUND").unwrap();
    }
}
