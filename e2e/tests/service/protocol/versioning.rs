//! The version prefix of paths, the OpenAPI document, and the documentation page.

use std::path::Path;

use serde_json::Value;

use crate::{shared_service, user};

#[tokio::test]
async fn the_prefix_is_required() {
    let (_service, client) = user().await;
    for path in ["/sandboxes", "/health", "/v2/sandboxes", "/v0/health", "/V1/sandboxes", "/v1.0/sandboxes"] {
        client.get(path).await.unwrap().error(404, "NOT_FOUND").unwrap_or_else(|e| panic!("{path}: {e:#}"));
    }
    assert_eq!(client.get("/v1/health").await.unwrap().is(200).unwrap()["version"], "v1");
}

#[tokio::test]
async fn nothing_is_deprecated_yet() {
    let (_service, client) = user().await;
    for path in ["/v1/health", crate::SANDBOXES] {
        assert!(client.get(path).await.unwrap().header("deprecation").is_none());
    }
}

#[tokio::test]
async fn the_served_openapi_document_is_the_checked_in_one() {
    let (_service, client) = user().await;
    let served = client.get("/v1/openapi.json").await.unwrap().is(200).unwrap();
    assert!(served["openapi"].as_str().unwrap().starts_with("3.1"), "{}", served["openapi"]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    let checked_in: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    assert!(checked_in == served, "docs/openapi.json differs from the served document");
    let paths = served["paths"].as_object().unwrap();
    for (path, methods) in [
        ("/v1/sandboxes", vec!["get", "post"]),
        ("/v1/sandboxes/{id}", vec!["delete", "get"]),
        ("/v1/sandboxes/{id}/pause", vec!["post"]),
        ("/v1/sandboxes/{id}/resume", vec!["post"]),
        ("/v1/sandboxes/{id}/execute", vec!["post"]),
        ("/v1/health", vec!["get"]),
    ] {
        for method in methods {
            assert!(paths[path].get(method).is_some(), "{method} {path} is not described");
        }
    }
}

/// The documentation page loads nothing from other hosts.
#[tokio::test]
async fn the_page_works_offline() {
    let service = shared_service().await;
    let anonymous = service.anonymous().unwrap();
    let page = anonymous.get("/docs").await.unwrap();
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let html = page.text();
    for external in ["src=\"http", "href=\"http", "src=\"//", "@import"] {
        assert!(!html.contains(external), "the page loads from another host: {external}");
    }
    for (path, content_type) in
        [("/docs/docs.css", "text/css; charset=utf-8"), ("/docs/docs.js", "text/javascript; charset=utf-8")]
    {
        assert!(html.contains(path.rsplit('/').next().unwrap()), "{path} is not used");
        let asset = anonymous.get(path).await.unwrap();
        assert_eq!((asset.status, asset.header("content-type")), (200, Some(content_type)));
    }
    anonymous.get("/docs/openapi.json").await.unwrap().is(200).unwrap();
}
