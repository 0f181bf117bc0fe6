//! Errors of exposed ports.

use admission::error::{ApiError, RefusalCode};
use api::ErrorCode;
use axum::http::StatusCode;
use engine::MAX_DIALS;
use rules::{PortRefusal, ReachedLimit};

use crate::ports::PortsFull;

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

/// No further connection through a port is allowed.
pub fn of_full_ports(full: PortsFull) -> ApiError {
    let (code, what, limit) = match full {
        PortsFull::Sandbox { most } => {
            let counts = "connections through the ports of a sandbox";
            let limit = ReachedLimit::set_by_operator(most.into(), counts, "ports.max_connections");
            (RefusalCode::RateLimited, "this sandbox", limit)
        }
        PortsFull::Account { most } => {
            let counts = "connections through the ports of an account";
            let limit = ReachedLimit::set_by_operator(most.into(), counts, "ports.account_connections");
            (RefusalCode::RateLimited, "this account", limit)
        }
        PortsFull::Service { most } => {
            let limit = ReachedLimit::fixed(most.into(), "connections through the ports of all sandboxes");
            (RefusalCode::ResourceExhausted, "all sandboxes", limit)
        }
    };
    let why = format!("too many requests and connections through the ports of {what} are in progress");
    ApiError::refused(code, why, limit, RETRY_AFTER_S)
}

/// The sandbox has too many connections to its ports in progress.
pub fn too_many_dials() -> ApiError {
    let limit = ReachedLimit::fixed(MAX_DIALS as u64, "connections to the ports of a sandbox");
    let why = "the sandbox has too many operations in progress";
    ApiError::refused(RefusalCode::RateLimited, why, limit, RETRY_AFTER_S)
}

/// The program did not respond in time.
pub fn gateway_timeout(message: String) -> ApiError {
    ApiError::new(ErrorCode::PortUnreachable, message).with_status(StatusCode::GATEWAY_TIMEOUT)
}
