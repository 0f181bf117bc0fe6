//! Errors of the agent of a sandbox.

use guest_proto::RefusalKind;

use super::Source;
use super::class::{ErrorClass, Retry};
use crate::link::LinkError;

/// What the agent failed at.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent did not answer, closed its link, or broke the protocol.
    #[error("the sandbox's agent failed: {0}")]
    Failed(#[source] Source),
    /// The agent has too many operations in progress.
    #[error("{message}")]
    Busy { message: String },
    /// The sandbox was started by an earlier version of the daemon, whose agent lacks the operation.
    #[error("the sandbox's agent is too old for this operation")]
    TooOld,
    /// The agent reached no program at the port.
    #[error("nothing accepts connections on this port: {message}")]
    PortUnreachable { message: String },
}

impl AgentError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Busy { .. } => ErrorClass::AgentFailed(Retry::Useful),
            Self::Failed(_) | Self::TooOld | Self::PortUnreachable { .. } => {
                ErrorClass::AgentFailed(Retry::Useless)
            }
        }
    }
}

impl From<LinkError> for AgentError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::TooOld => Self::TooOld,
            LinkError::Refused { kind: RefusalKind::Connect, message } => Self::PortUnreachable { message },
            LinkError::Refused { kind: RefusalKind::TooMany, message } => Self::Busy { message },
            error => Self::Failed(error.into()),
        }
    }
}
