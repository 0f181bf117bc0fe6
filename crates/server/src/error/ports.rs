//! Errors of exposed ports.

use api::ErrorCode;
use axum::http::StatusCode;
use rules::PortRefusal;

use super::ApiError;

/// Connections are usually short.
const RETRY_AFTER_S: u64 = 1;

pub fn of_port(refusal: &PortRefusal) -> ApiError {
    let message = refusal.to_string();
    match *refusal {
        PortRefusal::NotAllowed { port, .. } => {
            ApiError::new(ErrorCode::PortNotAllowed, message).with_detail("port", port)
        }
        PortRefusal::TooMany { .. } => {
            ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "port")
        }
        PortRefusal::NotExposed { port } => {
            ApiError::new(ErrorCode::PortNotFound, message).with_detail("port", port)
        }
    }
}

/// The port in the path is not exposed.
pub fn port_not_found(message: String, id: &str) -> ApiError {
    ApiError::new(ErrorCode::PortNotFound, message).with_detail("sandboxId", id)
}

/// The host name is not that of an exposed port.
pub fn unknown_host() -> ApiError {
    ApiError::new(ErrorCode::PortNotFound, "no port is exposed under this host name; it may have been closed")
}

pub fn too_many_connections(message: &str) -> ApiError {
    ApiError::new(ErrorCode::RateLimited, message).retry_after(RETRY_AFTER_S)
}

/// The program did not respond in time.
pub fn gateway_timeout(message: String) -> ApiError {
    ApiError::new(ErrorCode::PortUnreachable, message).with_status(StatusCode::GATEWAY_TIMEOUT)
}
