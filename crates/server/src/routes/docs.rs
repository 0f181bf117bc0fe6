//! The readable page of the interface: four files that need no key. The page asks for nothing from anywhere else.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;

use super::{openapi, view};

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

pub async fn page() -> Response {
    file("text/html; charset=utf-8", include_str!("../assets/docs.html").into())
}

pub async fn style() -> Response {
    file("text/css; charset=utf-8", include_str!("../assets/docs.css").into())
}

pub async fn script() -> Response {
    file("text/javascript; charset=utf-8", include_str!("../assets/docs.js").into())
}

pub async fn openapi() -> Response {
    file("application/json; charset=utf-8", openapi::content())
}

fn file(kind: &'static str, content: Bytes) -> Response {
    let mut response = view::typed(kind, content);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
