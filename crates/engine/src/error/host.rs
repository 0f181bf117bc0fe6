//! Errors of the host and of the daemon.

use store::StoreError;

use super::Source;
use super::class::{ErrorClass, Retry};

/// What a full file system of the host lacks.
const DISK_SPACE: &str = "disk space";

/// What failed on the host.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The host ran out of something that the isolation backend needs.
    #[error("{source}")]
    Exhausted { what: &'static str, source: Source },
    /// The isolation backend failed.
    #[error("{0}")]
    Backend(#[source] Source),
    #[error("the network failed: {0}")]
    Network(#[from] net::NetError),
    #[error("the store failed: {0}")]
    Store(#[source] StoreError),
}

/// Why this daemon does not do the work.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error("the daemon is stopping and accepts no new work")]
    Stopping,
    #[error("an engine task ended without a response")]
    TaskLost,
    /// Daemons have ended during this work, and it is not begun again.
    #[error(transparent)]
    GaveUp(#[from] rules::GaveUp),
}

impl HostError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Exhausted { .. } => ErrorClass::BackendFailed(Retry::Useful),
            Self::Backend(_) => ErrorClass::BackendFailed(Retry::Useless),
            Self::Network(_) | Self::Store(_) => ErrorClass::ServiceFailed(Retry::Useless),
        }
    }

    /// The host's disk is full.
    pub(super) fn disk_full(source: impl Into<Source>) -> Self {
        Self::Exhausted { what: DISK_SPACE, source: source.into() }
    }
}

impl DaemonError {
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Stopping => ErrorClass::Refused(Retry::Useful),
            Self::TaskLost | Self::GaveUp(_) => ErrorClass::ServiceFailed(Retry::Useless),
        }
    }
}

impl From<StoreError> for HostError {
    fn from(error: StoreError) -> Self {
        if error.is_disk_full() {
            return Self::disk_full(error);
        }
        Self::Store(error)
    }
}

impl From<base::TaskLost> for DaemonError {
    fn from(_: base::TaskLost) -> Self {
        Self::TaskLost
    }
}
