//! The endpoints, one verb a file, and the tables of them.
//!
//! [`router`] is all of the service as its listener sees it. A handler reads what was asked (`read`, crate `reader`), hands it to the
//! engine or the store, and writes what `api` says; it decides nothing. What fails becomes an `ApiError`, and nothing is left
//! behind: whatever a refused request had begun, the engine has undone.

mod create;
mod docs;
mod events;
mod execute;
mod executions;
mod files;
mod follow;
mod get;
mod health;
mod images;
mod list;
mod named;
mod network;
mod openapi;
mod pause;
mod ports;
mod post_events;
mod read;
mod resume;
mod rule;
mod stream;
mod terminate;
mod view;

use std::sync::Arc;

use api::ErrorCode;
use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::{get, post};

use crate::error::ApiError;
use crate::layers::Guarded;
use crate::service::Service;

pub use openapi::document;
pub use rule::rule;

/// The whole service.
pub fn guarded(service: Arc<Service>) -> Guarded {
    Guarded { router: endpoints(Arc::clone(&service)), service, find: rule }
}

/// What is served, without what every request passes on its way.
fn endpoints(service: Arc<Service>) -> Router {
    Router::new()
        .route("/v1/health", get(health::health))
        .route("/v1/openapi.json", get(openapi::openapi))
        .route("/v1/sandboxes", get(list::list).post(create::create))
        .route("/v1/sandboxes/{id}", get(get::get).delete(terminate::terminate))
        .route("/v1/sandboxes/{id}/pause", post(pause::pause))
        .route("/v1/sandboxes/{id}/resume", post(resume::resume))
        .route("/v1/sandboxes/{id}/network", get(network::get).patch(network::change))
        .route("/v1/sandboxes/{id}/execute", post(execute::execute))
        .merge(executions::routes())
        .merge(files::routes())
        .merge(ports::routes())
        .route("/v1/sandboxes/{id}/events", get(events::of_sandbox).post(post_events::post))
        .route("/v1/events", get(events::of_account))
        .route("/v1/images", get(images::list))
        .route("/docs", get(docs::page))
        .route("/docs/", get(docs::page))
        .route("/docs/docs.css", get(docs::style))
        .route("/docs/docs.js", get(docs::script))
        .route("/docs/openapi.json", get(docs::openapi))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .with_state(service)
}

async fn nothing_here(uri: Uri) -> ApiError {
    let message = format!("there is nothing at {}; see /docs for what there is", rules::shown(uri.path()));
    ApiError::new(ErrorCode::NotFound, message)
}

/// The router adds `Allow`.
async fn wrong_method(method: Method, uri: Uri) -> ApiError {
    let (path, method) = (rules::shown(uri.path()), rules::shown(method.as_str()));
    let message = format!("{path} does not take the method {method}; the header Allow names those it takes");
    ApiError::new(ErrorCode::MethodNotAllowed, message)
}

#[cfg(test)]
mod tests;
