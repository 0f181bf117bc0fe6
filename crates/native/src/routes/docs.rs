//! The API reference page and the start page: static files that need no key. The pages load nothing from other hosts.

use admission::endpoint::Open;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;

use super::{openapi, view};
use crate::endpoint::Endpoint;
use crate::layers::START_PAGE;

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

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
/// Stands for the version in the start page.
const VERSION: &str = "{{version}}";

/// The reference page under both of its paths, the start page, their style sheet and scripts, and the document.
pub fn endpoints() -> [Endpoint; 8] {
    [
        asset("/docs", HTML, page),
        asset("/docs/", HTML, page),
        Endpoint::get(START_PAGE, Open).handler(|_| async { Ok(start_page()) }),
        asset("/docs/docs.css", "text/css; charset=utf-8", || include_str!("../assets/docs.css").into()),
        asset("/docs/docs.js", SCRIPT, || include_str!("../assets/docs.js").into()),
        asset("/docs/try.js", SCRIPT, || include_str!("../assets/try.js").into()),
        asset("/docs/start.js", SCRIPT, || include_str!("../assets/start.js").into()),
        asset("/docs/openapi.json", "application/json; charset=utf-8", openapi::content),
    ]
}

fn asset(path: &'static str, kind: &'static str, content: fn() -> Bytes) -> Endpoint {
    Endpoint::get(path, Open).handler(move |_| async move { Ok(file(kind, content())) })
}

fn page() -> Bytes {
    include_str!("../assets/docs.html").into()
}

/// The page for a browser that opens the address of the service.
fn start_page() -> Response {
    let page = include_str!("../assets/start.html").replace(VERSION, env!("CARGO_PKG_VERSION"));
    let mut response = file(HTML, page.into());
    // At `/` other clients get JSON.
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn file(kind: &'static str, content: Bytes) -> Response {
    let mut response = view::typed(kind, content);
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
