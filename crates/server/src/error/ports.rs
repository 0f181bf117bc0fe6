//! What is told of ports.

use api::ErrorCode;
use axum::http::StatusCode;
use rules::PortRefusal;

use super::ApiError;

/// A connection is, on the average, soon over.
const PLACE_RETRY_S: u64 = 1;

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

/// A name in a path that is no exposed port.
pub fn port_not_found(message: String, id: &str) -> ApiError {
    ApiError::new(ErrorCode::PortNotFound, message).with_detail("sandboxId", id)
}

/// There is no port behind a host.
pub fn nobody() -> ApiError {
    ApiError::new(ErrorCode::PortNotFound, "no port is exposed under this name; it was closed, or never was")
}

pub fn crowded(message: &str) -> ApiError {
    ApiError::new(ErrorCode::RateLimited, message).retry_after(PLACE_RETRY_S)
}

/// What listens inside said nothing for too long.
pub fn silent(message: String) -> ApiError {
    ApiError::new(ErrorCode::PortUnreachable, message).with_status(StatusCode::GATEWAY_TIMEOUT)
}
