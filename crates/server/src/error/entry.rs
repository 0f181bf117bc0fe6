//! Errors of requests through exposed ports.

use api::ErrorCode;
use engine::EngineError;

use super::ApiError;
use super::operations::{OperationKind, of_engine};
use super::ports::{too_many_dials, unknown_host};

/// The sender may be anonymous: the error reveals nothing else about the sandbox.
pub fn of_entry(error: EngineError, port: u16) -> ApiError {
    match error {
        EngineError::PortUnreachable { .. } => ApiError::new(
            ErrorCode::PortUnreachable,
            format!(
                "nothing listens on port {port} in the sandbox; start the program, on 127.0.0.1 or on all addresses"
            ),
        ),
        EngineError::AgentBusy { .. } => too_many_dials(),
        EngineError::Agent(_)
        | EngineError::AgentTooOld
        | EngineError::Backend(_)
        | EngineError::HostExhausted { .. } => {
            ApiError::new(ErrorCode::PortUnreachable, "the sandbox does not respond").with_cause(error)
        }
        EngineError::NotFound { .. }
        | EngineError::Port(_)
        | EngineError::Refused(rules::OperationRefusal::NotFound) => unknown_host(),
        error => of_engine(error, None, OperationKind::Other),
    }
}
