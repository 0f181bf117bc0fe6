//! The endpoints of exposed ports, one per module. `relay` carries their traffic.

mod close;
mod expose;
mod list;
mod token;

use admission::error::ApiError;
use axum::http::Uri;
use service::Service;
use service::error::{OperationKind, of_engine, port_not_found};

use super::read::sandbox_id;
use crate::endpoint::Endpoint;

/// The endpoints below a sandbox's `ports`.
pub fn endpoints() -> [Endpoint; 4] {
    [list::endpoint(), expose::endpoint(), close::endpoint(), token::endpoint()]
}

/// The sandbox id and the port in a path. A text that is not a port number names no port.
async fn sandbox_and_port(
    service: &Service,
    account: &str,
    uri: &Uri,
) -> Result<(api::SandboxId, u16), ApiError> {
    let id = sandbox_id(uri)?;
    let segment = uri.path().split('/').nth(5).unwrap_or_default();
    let text = reader::path_segment(segment).unwrap_or_default();
    match text.parse::<u16>().ok().filter(|port| *port != 0 && port.to_string() == text) {
        Some(port) => Ok((id, port)),
        None => {
            let found = service.engine.sandbox(account, &id).status().await;
            found.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
            service.engine.sandbox(account, &id).touch();
            Err(port_not_found(format!("port {} is not exposed", rules::quoted(&text)), id.as_str()))
        }
    }
}
