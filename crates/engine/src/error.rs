//! Why the engine did not do what it was asked. One table above turns these into statuses.

use driver::DriverError;
use guest_proto::FileErrorKind;
use rules::TimeMs;
use store::StoreError;

use crate::executions::{ExecutionId, ExecutionState};
use crate::link::LinkError;

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No such sandbox in this account, or it is over; then its owner is told when and why.
    #[error("no such sandbox")]
    NotFound { terminated: Option<(TimeMs, String)> },
    #[error(transparent)]
    Refused(#[from] rules::Refusal),
    #[error(transparent)]
    TooManyExecutions(#[from] rules::TooManyExecutions),
    #[error(transparent)]
    NeverStarted(#[from] rules::NeverStarted),
    #[error(transparent)]
    NoCapacity(#[from] rules::Exhausted),
    #[error("this host has no more of its {0} ranges of user ids; try again when other sandboxes have ended")]
    NoSlot(u32),
    /// What the image has at the wanted working directory, or above it, is no directory or takes none.
    #[error("workdir is '{path}', which this image cannot have: {reason}")]
    Workdir { path: String, reason: String },
    #[error("the daemon is stopping and takes no new work")]
    Stopping,
    #[error("the sandbox's agent failed: {0}")]
    Agent(#[from] LinkError),
    #[error(transparent)]
    Port(#[from] rules::PortRefusal),
    #[error(transparent)]
    File(#[from] FileFault),
    #[error("the sandbox has no execution '{id}'; finished ones are kept for a while only")]
    NoSuchExecution { id: ExecutionId },
    #[error("the execution '{id}' is over")]
    ExecutionEnded { id: ExecutionId, state: ExecutionState },
    #[error("the execution '{id}' takes no input: it was started without, or its input was closed")]
    NoStdin { id: ExecutionId },
    #[error("the execution '{id}' has no terminal")]
    NoTerminal { id: ExecutionId },
    /// What is kept of detached executions could not be written or read.
    #[error("the log of an execution failed: {0}")]
    Log(#[from] std::io::Error),
    #[error(transparent)]
    Driver(#[from] DriverError),
    #[error("the network failed: {0}")]
    Network(#[from] net::NetError),
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    #[error("an engine task ended without an answer")]
    TaskLost,
}

/// Why something was not done among files, as the sandbox says it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileFault {
    pub kind: FileErrorKind,
    pub message: String,
}
