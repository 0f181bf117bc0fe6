//! Errors of requests through exposed ports.

use admission::error::ApiError;
use api::ErrorCode;
use engine::{AgentError, EngineError, HostError, SandboxError};

use super::operations::{OperationKind, of_engine};
use super::ports::{too_many_dials, unknown_host};

/// The sender may be anonymous: the error reveals nothing else about the sandbox.
pub fn of_entry(error: EngineError, port: u16) -> ApiError {
    match error {
        EngineError::Agent(AgentError::PortUnreachable { .. }) => ApiError::new(
            ErrorCode::PortUnreachable,
            format!(
                "nothing listens on port {port} in the sandbox; start the program, on 127.0.0.1 or on all addresses"
            ),
        ),
        EngineError::Agent(AgentError::Busy { .. }) => too_many_dials(),
        EngineError::Agent(AgentError::Failed(_) | AgentError::TooOld)
        | EngineError::Host(HostError::Backend(_) | HostError::Exhausted { .. }) => {
            ApiError::new(ErrorCode::PortUnreachable, "the sandbox does not respond").with_cause(error)
        }
        EngineError::Sandbox(
            SandboxError::NotFound { .. } | SandboxError::Refused(rules::OperationRefusal::NotFound),
        )
        | EngineError::Port(_) => unknown_host(),
        error => of_engine(error, None, OperationKind::Other),
    }
}
