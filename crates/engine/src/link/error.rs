//! Errors of the link to an agent.

use std::time::Duration;

use guest_proto::{ProtoError, RefusalKind};

/// Why an operation on the link failed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    #[error("the link to the agent broke: {0}")]
    Io(#[from] std::io::Error),
    #[error("the agent broke the protocol: {0}")]
    Protocol(#[from] ProtoError),
    #[error("the agent sent {got} instead of {wanted}")]
    Unexpected { wanted: &'static str, got: &'static str },
    #[error("the agent closed the link")]
    Closed,
    #[error("the agent is too old for this operation")]
    TooOld,
    #[error("the agent did not answer within {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the agent refused ({kind:?}): {message}")]
    Refused { kind: RefusalKind, message: String },
}
