//! The list of images: stored ones, and pulls in progress.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::fixture::{Answer, Fixture, HANGING, IMAGE};

const ALL: &str = "/v1/images";

fn names(answer: &Answer) -> Vec<&str> {
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.json["data"].as_array().unwrap().iter().map(|image| image["name"].as_str().unwrap()).collect()
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// A create that gets 503 because its image is being pulled.
async fn begin_to_fetch(fixture: &Fixture, image: &str) {
    let answer = fixture.post("/v1/sandboxes", json!({ "image": image })).await;
    assert_eq!(
        (answer.status, answer.detail("field")),
        (StatusCode::SERVICE_UNAVAILABLE, "image"),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn stored_images_and_pulls_are_listed() {
    let fixture = Fixture::new().await;
    let before = fixture.call("GET", ALL).await;
    assert_eq!(names(&before), [IMAGE]);
    let ready = &before.json["data"][0];
    assert_eq!(keys(ready), ["createdAt", "digest", "name", "sizeBytes", "status"]);
    assert_eq!(ready["status"], "ready");
    assert!(ready["digest"].as_str().unwrap().starts_with("sha256:"), "{ready}");

    begin_to_fetch(&fixture, HANGING).await;
    let now = fixture.call("GET", ALL).await;
    assert_eq!(names(&now), [HANGING, IMAGE]);
    let pulling = &now.json["data"][0];
    assert_eq!(
        *pulling,
        json!({ "name": HANGING, "status": "pulling", "progress": { "stage": "resolving", "doneBytes": 0, "totalBytes": 0 } })
    );
    assert_eq!(now.json["pagination"], json!({ "total": 2, "limit": 20, "offset": 0, "hasMore": false }));
    assert_eq!(names(&fixture.call("GET", "/v1/images?name=hanging%3A1").await), [HANGING]);
    assert!(names(&fixture.call("GET", "/v1/images?name=custom").await).is_empty());
    let page = fixture.call("GET", "/v1/images?limit=1&offset=1").await;
    assert_eq!(names(&page), [IMAGE]);
    assert_eq!(page.json["pagination"]["total"], 2);
}

/// As another process of the same host puts it there.
#[tokio::test]
async fn what_another_process_fetched_is_listed() {
    let fixture = Fixture::new().await;
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("usr")).unwrap();
    let beside = fixture.images_beside();
    let source = format!("rootfs:{}", root.path().display()).parse().unwrap();
    beside.import("beside:1", source, std::sync::Arc::new(|_| {})).await.unwrap();
    assert_eq!(names(&fixture.call("GET", "/v1/images?name=beside:1").await), ["beside:1"]);
    assert_eq!(names(&fixture.call("GET", ALL).await), ["beside:1", IMAGE]);
}

#[tokio::test]
async fn an_image_is_listed_for_accounts_that_name_it() {
    let fixture = Fixture::with_any_image().await;
    let theirs = fixture.hanging_reference("their/secret:1");
    begin_to_fetch(&fixture, &theirs).await;
    assert_eq!(names(&fixture.call("GET", ALL).await), [IMAGE]);
    let named = fixture.call("GET", &format!("/v1/images?name={theirs}")).await;
    assert_eq!(names(&named), [theirs.as_str()]);
    assert_eq!(named.json["data"][0]["status"], "pulling");
}

#[tokio::test]
async fn a_create_cannot_name_a_registry_without_a_public_address() {
    let fixture = Fixture::with_any_image().await;
    let port = fixture.registry_port();
    // Only its address is listed.
    let names = [format!("localhost:{port}/app:1"), "169.254.169.254/latest/meta-data:1".to_owned()];
    for name in names {
        let answer = fixture.post("/v1/sandboxes", json!({ "image": name })).await;
        assert_eq!(
            (answer.status, answer.code()),
            (StatusCode::BAD_REQUEST, "INVALID_CONFIG"),
            "{}",
            answer.text
        );
        assert_eq!(answer.detail("field"), "image");
        assert!(answer.text.contains("images.private_registries"), "{}", answer.text);
        // The addresses of names are only in the log.
        assert!(!answer.text.contains("127.0.0.1"), "{}", answer.text);
    }
    assert_eq!(names_of_pulls(&fixture).await, [IMAGE]);
}

async fn names_of_pulls(fixture: &Fixture) -> Vec<String> {
    names(&fixture.call("GET", ALL).await).into_iter().map(str::to_owned).collect()
}

#[tokio::test]
async fn parameters_are_read_strictly() {
    let fixture = Fixture::new().await;
    for query in ["limit=0", "limit=x", "offset=-1", "name=a&name=b", "name=%ff"] {
        let answer = fixture.call("GET", &format!("{ALL}?{query}")).await;
        assert_eq!((answer.status, answer.code()), (StatusCode::BAD_REQUEST, "INVALID_REQUEST"), "{query}");
    }
    assert_eq!(names(&fixture.call("GET", "/v1/images?unknown=1").await), [IMAGE]);
}
