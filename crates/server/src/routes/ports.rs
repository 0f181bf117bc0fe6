//! The endpoints of ports, one verb a file. What is exposed is reached over `relay`, and not here.

pub mod close;
pub mod expose;
pub mod list;
pub mod token;

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::routing::{delete, get, post};

use super::read::sandbox_id;
use crate::error::{ApiError, During, of_engine, port_not_found};
use crate::service::Service;

/// The routes below a sandbox's `ports`.
pub fn routes() -> Router<Arc<Service>> {
    Router::new()
        .route("/v1/sandboxes/{id}/ports", get(list::list).post(expose::expose))
        .route("/v1/sandboxes/{id}/ports/{port}", delete(close::close))
        .route("/v1/sandboxes/{id}/ports/{port}/token", post(token::token))
}

/// The sandbox and the port that a path names. What is no number of a port is the name of no port.
async fn named(service: &Service, account: &str, uri: &Uri) -> Result<(api::SandboxId, u16), ApiError> {
    let id = sandbox_id(uri)?;
    let segment = uri.path().split('/').nth(5).unwrap_or_default();
    let text = reader::path_segment(segment).unwrap_or_default();
    match text.parse::<u16>().ok().filter(|port| *port != 0 && port.to_string() == text) {
        Some(port) => Ok((id, port)),
        None => {
            let found = service.engine.sandbox(account, &id).status().await;
            found.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
            service.engine.sandbox(account, &id).touch();
            Err(port_not_found(format!("port {} is not exposed", rules::shown(&text)), id.as_str()))
        }
    }
}
