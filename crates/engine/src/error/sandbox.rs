//! Errors of sandboxes and of their lifecycle.

use api::SandboxId;
use rules::TimeMs;

use super::Source;
use super::class::{ErrorClass, Retry};

/// Why a request to a sandbox, or for a new one, was refused.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The account has no such sandbox, or the sandbox was terminated. Only its owner gets the time and the reason.
    #[error("no such sandbox")]
    NotFound { terminated: Option<(TimeMs, String)> },
    /// Another sandbox of the account has the name. Without a holder, it is that of a create in progress.
    #[error("the name '{name}' is in use")]
    NameTaken { name: String, holder: Option<SandboxId> },
    #[error(transparent)]
    Refused(#[from] rules::OperationRefusal),
    /// The image has something other than a directory at the requested working directory or above it, or a read-only one.
    #[error("workdir is '{path}', which cannot be created in this image: {reason}")]
    Workdir { path: String, reason: String },
    /// The file system of the sandbox's disk could not be written, and has become read-only.
    #[error(
        "the disk of the sandbox has become read-only, because the host could not write it; pause and resume the sandbox: that ends its processes, and it starts again on its disk"
    )]
    ReadOnlyDisk,
}

/// Why the processes of a sandbox were not stored or not continued.
#[derive(Debug, thiserror::Error)]
pub enum HibernationError {
    /// The processes of the sandbox cannot be stored.
    #[error("the processes of the sandbox cannot be stored: {reason}")]
    NotStorable { reason: String },
    /// Stored processes cannot be continued by the release of the isolation backend on this host.
    #[error("{0}")]
    OtherRelease(#[source] Source),
    /// Stored processes could not be continued. What is stored stays.
    #[error("the processes of the sandbox could not be continued: {0}")]
    WakeFailed(#[source] Source),
}

impl SandboxError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotFound { .. }
            | Self::NameTaken { .. }
            | Self::Refused(_)
            | Self::Workdir { .. }
            | Self::ReadOnlyDisk => ErrorClass::Refused(Retry::Useless),
        }
    }
}

impl HibernationError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotStorable { .. } | Self::OtherRelease(_) => ErrorClass::Refused(Retry::Useless),
            Self::WakeFailed(_) => ErrorClass::ServiceFailed(Retry::Useless),
        }
    }
}
