//! Errors of work inside a sandbox: commands, processes, code and files.

use api::ExecutionId;
use guest_proto::{FileErrorKind, RefusalKind};

use super::class::{ErrorClass, Retry};

/// Why a command was not started, or a detached one takes no request.
#[derive(Debug, thiserror::Error)]
pub enum ExecutionError {
    #[error(transparent)]
    TooMany(#[from] rules::TooManyExecutions),
    #[error(transparent)]
    NeverStarted(#[from] rules::NeverStarted),
    #[error("the sandbox has no execution '{id}'; ended executions are stored up to a limit")]
    NotFound { id: ExecutionId },
    #[error("the execution '{id}' has ended")]
    Ended { id: ExecutionId, end: ExecutionEnd },
    #[error("the execution '{id}' takes no input: it was started without stdin, or its stdin was closed")]
    NoStdin { id: ExecutionId },
    #[error("the execution '{id}' has no terminal")]
    NoTerminal { id: ExecutionId },
    #[error("the log of an execution failed: {0}")]
    Log(#[source] std::io::Error),
}

/// How an execution has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecutionEnd {
    Exited,
    /// Its processes ended with those of the sandbox.
    Lost,
}

/// Why a process was not started, or not found.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// The sandbox did not start the process.
    #[error("{message}")]
    Refused { refusal: ProcessRefusal, message: String },
    #[error("the sandbox has no process with {selector}")]
    NotFound { selector: String },
    #[error("{0}")]
    Invalid(&'static str),
}

/// Why the sandbox did not start a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRefusal {
    UnknownUser,
    CwdMissing,
    ProgramMissing,
    /// The user may not enter the working directory, or run the program.
    NotAllowed,
    TooMany,
    Other,
}

/// The error that the agent reported for a file operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    pub kind: FileErrorKind,
    pub message: String,
}

impl ExecutionError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::TooMany(_) | Self::NeverStarted(_) => ErrorClass::Refused(Retry::Useful),
            Self::NotFound { .. } | Self::Ended { .. } | Self::NoStdin { .. } | Self::NoTerminal { .. } => {
                ErrorClass::Refused(Retry::Useless)
            }
            Self::Log(_) => ErrorClass::ServiceFailed(Retry::Useless),
        }
    }
}

impl ProcessError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Refused { .. } | Self::NotFound { .. } | Self::Invalid(_) => {
                ErrorClass::Refused(Retry::Useless)
            }
        }
    }
}

impl From<RefusalKind> for ProcessRefusal {
    fn from(kind: RefusalKind) -> Self {
        match kind {
            RefusalKind::UserMissing => Self::UnknownUser,
            RefusalKind::CwdMissing => Self::CwdMissing,
            RefusalKind::ProgramMissing => Self::ProgramMissing,
            RefusalKind::NotAllowed => Self::NotAllowed,
            RefusalKind::TooMany => Self::TooMany,
            RefusalKind::Connect | RefusalKind::UnknownOp | RefusalKind::Failed => Self::Other,
        }
    }
}
