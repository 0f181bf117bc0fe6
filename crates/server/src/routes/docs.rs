//! The API documentation page: static files that need no key. The page loads nothing from other hosts.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;

use super::{openapi, view};
use crate::endpoint::{Endpoint, Open};

const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// The page under both of its paths, its style sheet, its script and the document.
pub fn endpoints() -> [Endpoint; 5] {
    [
        asset("/docs", "text/html; charset=utf-8", page),
        asset("/docs/", "text/html; charset=utf-8", page),
        asset("/docs/docs.css", "text/css; charset=utf-8", || include_str!("../assets/docs.css").into()),
        asset("/docs/docs.js", "text/javascript; charset=utf-8", || include_str!("../assets/docs.js").into()),
        asset("/docs/openapi.json", "application/json; charset=utf-8", openapi::content),
    ]
}

fn asset(path: &'static str, kind: &'static str, content: fn() -> Bytes) -> Endpoint {
    Endpoint::get(path, Open).handler(move |_| async move { Ok(file(kind, content())) })
}

fn page() -> Bytes {
    include_str!("../assets/docs.html").into()
}

fn file(kind: &'static str, content: Bytes) -> Response {
    let mut response = view::typed(kind, content);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
