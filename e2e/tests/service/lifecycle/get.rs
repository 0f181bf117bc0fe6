//! Getting one sandbox.

use hyper::Method;
use serde_json::json;

use crate::{UNKNOWN_ID, create_sandbox, sandbox_path, user};

#[tokio::test]
async fn get_returns_what_create_returned() {
    let (_service, client) = user().await;
    let sandbox = client.post(crate::SANDBOXES, &crate::small()).await.unwrap().is(201).unwrap();
    let got = client.get(&sandbox_path(sandbox["id"].as_str().unwrap())).await.unwrap().is(200).unwrap();
    assert_eq!(got, sandbox);
}

#[tokio::test]
async fn an_unknown_id_is_in_the_error() {
    let (_service, client) = user().await;
    let error = client.get(&sandbox_path(UNKNOWN_ID)).await.unwrap().error(404, "SANDBOX_NOT_FOUND").unwrap();
    assert_eq!(error["details"], json!({ "sandboxId": UNKNOWN_ID }));
}

#[tokio::test]
async fn other_methods_are_not_allowed() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    for method in [Method::PUT, Method::PATCH, Method::POST] {
        let answer = client.call(method, &sandbox_path(&id)).send().await.unwrap();
        answer.error(405, "METHOD_NOT_ALLOWED").unwrap();
        let allow = answer.header("allow").unwrap();
        assert!(allow.contains("GET") && allow.contains("DELETE"), "{allow}");
    }
    // Paths are exact: no additional slash, no other case.
    for path in
        [format!("{}/", sandbox_path(&id)), format!("/V1/sandboxes/{id}"), format!("/v1//sandboxes/{id}")]
    {
        client.get(&path).await.unwrap().error(404, "NOT_FOUND").unwrap();
    }
}
