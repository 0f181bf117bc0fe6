//! The endpoints of exposed ports, one per module. `relay` carries their traffic.

mod close;
mod expose;
mod list;
mod token;

use admission::error::ApiError;
use service::error::{OperationKind, port_not_found};

use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::{Call, Endpoint};

/// The endpoints below a sandbox's `ports`.
pub fn endpoints() -> [Endpoint; 4] {
    [list::endpoint(), expose::endpoint(), close::endpoint(), token::endpoint()]
}

/// The sandbox id and the port in a path. A text that is not a port number names no port.
async fn sandbox_and_port(call: &Call) -> Result<(RequestedSandbox, u16), ApiError> {
    let sandbox = RequestedSandbox::of(call, OperationKind::Other)?;
    let segment = call.parts.uri.path().split('/').nth(5).unwrap_or_default();
    let text = reader::path_segment(segment).unwrap_or_default();
    match text.parse::<u16>().ok().filter(|port| *port != 0 && port.to_string() == text) {
        Some(port) => Ok((sandbox, port)),
        None => {
            sandbox.exists().await?;
            sandbox.handle().touch();
            Err(port_not_found(format!("port {} is not exposed", rules::quoted(&text)), sandbox.id.as_str()))
        }
    }
}
