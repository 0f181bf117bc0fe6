//! A browser at the address of the service gets a page that leads on; every other client gets the response to a path that the API
//! does not have.

use axum::extract::Request;
use axum::http::{HeaderValue, Method, header};

/// The page's own path.
pub const START_PAGE: &str = "/docs/start";

/// The path by which the endpoint of a request is found.
pub fn routed_path(request: &Request) -> &str {
    let path = request.uri().path();
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    let accepts = request.headers().get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes);
    if path == "/" && is_read && reader::wants_page(accepts) { START_PAGE } else { path }
}
