//! No endpoint without its key and scope, and no path without an endpoint.

use admission::endpoint::Access;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};

use super::fixture::{Answer, Fixture, bearer};
use crate::endpoint::Endpoint;
use crate::routes::endpoints;
use crate::testing::SCOPED;

/// A path of the endpoint that names no sandbox which exists.
fn path(endpoint: &Endpoint) -> String {
    let path = endpoint.path.replace("{id}", "sb_aaaaaaaa").replace("{port}", "8080");
    path.replace("{execution}", "ex_aaaaaaaaaaaaaaaaaaaa")
}

async fn ask(fixture: &Fixture, method: &Method, path: &str, key: Option<u8>) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(n) = key {
        request = request.header("authorization", bearer(n));
    }
    fixture.ask(request.body(Body::empty()).unwrap()).await
}

#[tokio::test]
async fn every_endpoint_wants_a_key_with_its_scope() {
    let fixture = Fixture::new().await;
    let mut keyed = 0;
    for endpoint in endpoints() {
        let (method, path) = (&endpoint.method, path(&endpoint));
        let here = format!("{method} {path}");
        let bare = ask(&fixture, method, &path, None).await;
        let Access::Key { scope, .. } = endpoint.access else {
            assert_eq!(bare.status, StatusCode::OK, "{here}");
            continue;
        };
        keyed += 1;
        assert_eq!((bare.status, bare.code()), (StatusCode::UNAUTHORIZED, "UNAUTHORIZED"), "{here}");
        for (n, held) in SCOPED {
            let answer = ask(&fixture, method, &path, Some(n)).await;
            if held == scope {
                let refused = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN].contains(&answer.status);
                assert!(!refused && answer.status != StatusCode::METHOD_NOT_ALLOWED, "{here} {answer:?}");
                assert!(answer.code() != "NOT_FOUND", "{here} is not served");
            } else {
                assert_eq!((answer.status, answer.code()), (StatusCode::FORBIDDEN, "FORBIDDEN"), "{here}");
                assert_eq!(answer.detail("scope"), scope.as_str(), "{here}");
            }
        }
    }
    assert!(keyed > 30, "{keyed} endpoints with a key");
}

#[tokio::test]
async fn a_path_without_an_endpoint_is_refused_with_any_key() {
    let fixture = Fixture::new().await;
    for path in ["/v1/undeclared", "/v1/sandboxes/sb_aaaaaaaa/undeclared", "/internal", "/metrics"] {
        for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            assert_eq!(
                ask(&fixture, &method, path, None).await.status,
                StatusCode::UNAUTHORIZED,
                "{method} {path}"
            );
            for n in 1..=5 {
                let answer = ask(&fixture, &method, path, Some(n)).await;
                assert_eq!(
                    (answer.status, answer.code()),
                    (StatusCode::NOT_FOUND, "NOT_FOUND"),
                    "{method} {path}"
                );
            }
        }
    }
}
