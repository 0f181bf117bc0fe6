//! What is told of a request that came not through a port.

use api::ErrorCode;
use engine::EngineError;

use super::ApiError;
use super::operations::{During, of_engine};
use super::ports::{crowded, nobody};

/// Whoever asks may be a stranger, and is told nothing of the sandbox but this.
pub fn of_entry(error: EngineError, port: u16) -> ApiError {
    match error {
        EngineError::PortUnreachable { .. } => ApiError::new(
            ErrorCode::PortUnreachable,
            format!(
                "nothing listens on port {port} in the sandbox; start the program, on 127.0.0.1 or on all addresses"
            ),
        ),
        EngineError::AgentBusy { .. } => crowded("the sandbox has too much under way at once; try again"),
        EngineError::Agent(_)
        | EngineError::AgentTooOld
        | EngineError::Backend(_)
        | EngineError::HostExhausted { .. } => {
            ApiError::new(ErrorCode::PortUnreachable, "the sandbox does not answer").with_cause(error)
        }
        EngineError::NotFound { .. }
        | EngineError::Port(_)
        | EngineError::Refused(rules::Refusal::NotFound) => nobody(),
        error => of_engine(error, None, During::Other),
    }
}
