//! Why the engine refused or failed a request. The server has the only table from these errors to HTTP statuses.

use std::error::Error;

use api::{Isolation, SandboxId, SnapshotId};
use archive::ArchiveError;
use base::is_disk_full;
use driver::DriverError;
use guest_proto::{FileErrorKind, RefusalKind};
use rules::TimeMs;
use store::StoreError;

use crate::counters::Counters;
use crate::detached::{ExecutionId, ExecutionState};
use crate::link::error::LinkError;

/// The error that caused another one. Boxed, so that callers do not depend on the types of the layers below.
pub type Source = Box<dyn Error + Send + Sync>;

/// What a full file system of the host lacks.
const DISK_SPACE: &str = "disk space";

/// The messages of an error and its sources, each once: many messages include that of their source.
pub fn chain_text(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut error = error;
    while let Some(source) = error.source() {
        let message = source.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        error = source;
    }
    text
}

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The account has no such sandbox, or the sandbox was terminated. Only its owner gets the time and the reason.
    #[error("no such sandbox")]
    NotFound { terminated: Option<(TimeMs, String)> },
    /// Another sandbox of the account has the name. Without a holder, it is that of a create in progress.
    #[error("the name '{name}' is in use")]
    NameTaken { name: String, holder: Option<SandboxId> },
    /// The account has no such snapshot.
    #[error("no such snapshot")]
    NoSuchSnapshot { id: SnapshotId },
    /// A sandbox can be rolled back only to its own snapshots.
    #[error("snapshot {id} was taken of sandbox {sandbox}")]
    ForeignSnapshot { id: SnapshotId, sandbox: SandboxId },
    /// Another host has taken the snapshot; only that one deletes it.
    #[error("snapshot {id} was taken by another host; it can be deleted there")]
    SnapshotOfOtherHost { id: SnapshotId },
    /// A third host has adopted the sandbox.
    #[error("another host has adopted the sandbox")]
    AdoptedElsewhere,
    /// The snapshot is being copied from the object store to this host.
    #[error("snapshot {id} is being copied to this host")]
    SnapshotArriving { id: SnapshotId },
    /// The file system of the sandbox's disk could not be written, and has become read-only.
    #[error(
        "the disk of the sandbox has become read-only, because the host could not write it; pause and resume the sandbox: that ends its processes, and it starts again on its disk"
    )]
    ReadOnlyDisk,
    /// Another host has stored the snapshot, and this host lacks the image below it.
    #[error("the snapshot is above the image {image} with the digest {digest}, which this host lacks")]
    OtherImage { image: String, digest: String },
    /// Another host has stored a sandbox whose isolation is weaker than the rules of this host allow.
    #[error(
        "the sandbox has the isolation '{isolation}'; with its image and account this host allows '{minimum}' or a stronger one"
    )]
    WeakIsolation { isolation: Isolation, minimum: Isolation },
    /// The copy of a snapshot in the object store could not be used.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The processes of the sandbox cannot be stored.
    #[error("the processes of the sandbox cannot be stored: {reason}")]
    CannotStoreProcesses { reason: String },
    /// Stored processes cannot be continued by the release of the isolation backend on this host.
    #[error("{0}")]
    OtherRelease(#[source] Source),
    /// Stored processes could not be continued. What is stored stays.
    #[error("the processes of the sandbox could not be continued: {0}")]
    WakeFailed(#[source] Source),
    /// Daemons have ended during this work, and it is not begun again.
    #[error(transparent)]
    GaveUp(#[from] rules::GaveUp),
    #[error(transparent)]
    Config(#[from] rules::ConfigError),
    #[error(transparent)]
    Refused(#[from] rules::OperationRefusal),
    #[error(transparent)]
    TooManyExecutions(#[from] rules::TooManyExecutions),
    #[error(transparent)]
    NeverStarted(#[from] rules::NeverStarted),
    #[error(transparent)]
    NoCapacity(#[from] rules::Exhausted),
    #[error(transparent)]
    Shortage(#[from] rules::Shortage),
    #[error(transparent)]
    Quota(#[from] rules::QuotaExceeded),
    #[error("all {0} ranges of user ids of this host are in use; try again when other sandboxes have ended")]
    NoSlot(u32),
    /// The image has something other than a directory at the requested working directory or above it, or a read-only one.
    #[error("workdir is '{path}', which cannot be created in this image: {reason}")]
    Workdir { path: String, reason: String },
    #[error("the daemon is stopping and accepts no new work")]
    Stopping,
    /// The agent reached no program at the port.
    #[error("nothing accepts connections on this port: {message}")]
    PortUnreachable { message: String },
    /// The image has no code interpreter.
    #[error("the sandbox's image has no program 'code-interpreter'")]
    NoInterpreter,
    /// The code interpreter of the image did not start.
    #[error("the code interpreter of the sandbox did not start: {reason}")]
    InterpreterFailed { reason: String },
    /// The agent has too many operations in progress.
    #[error("{message}")]
    AgentBusy { message: String },
    /// The sandbox was started by an earlier version of the daemon, whose agent lacks the operation.
    #[error("the sandbox's agent is too old for this operation")]
    AgentTooOld,
    /// The agent did not answer, closed its link, or broke the protocol.
    #[error("the sandbox's agent failed: {0}")]
    Agent(#[source] Source),
    /// The host ran out of something that the isolation backend needs.
    #[error("{source}")]
    HostExhausted { what: &'static str, source: Source },
    /// The isolation backend failed.
    #[error("{0}")]
    Backend(#[source] Source),
    #[error(transparent)]
    Port(#[from] rules::PortRefusal),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the sandbox has no execution '{id}'; ended executions are stored up to a limit")]
    NoSuchExecution { id: ExecutionId },
    #[error("the execution '{id}' has ended")]
    ExecutionEnded { id: ExecutionId, state: ExecutionState },
    #[error("the execution '{id}' takes no input: it was started without stdin, or its stdin was closed")]
    NoStdin { id: ExecutionId },
    #[error("the execution '{id}' has no terminal")]
    NoTerminal { id: ExecutionId },
    /// The sandbox did not start the process.
    #[error("{message}")]
    ProcessRefused { refusal: ProcessRefusal, message: String },
    #[error("the sandbox has no process with {selector}")]
    NoSuchProcess { selector: String },
    #[error("{0}")]
    ProcessInvalid(&'static str),
    #[error("the log of an execution failed: {0}")]
    Log(#[source] std::io::Error),
    #[error("the network failed: {0}")]
    Network(#[from] net::NetError),
    #[error("the store failed: {0}")]
    Store(#[source] StoreError),
    #[error("an engine task ended without a response")]
    TaskLost,
}

/// The error that the agent reported for a file operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FileError {
    pub kind: FileErrorKind,
    pub message: String,
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

impl EngineError {
    /// Counts a refused create, snapshot, resume or command.
    pub(crate) fn count_refusal(&self, counters: &Counters) {
        match self {
            Self::NoCapacity(_) => counters.refused_capacity.add(1),
            Self::NoSlot(_) => counters.refused_slots.add(1),
            Self::Shortage(_) => counters.refused_shortage.add(1),
            Self::Quota(_) => counters.refused_quota.add(1),
            Self::TooManyExecutions(_) => counters.refused_executions.add(1),
            _ => {}
        }
    }

    /// Whether the host has no room for another sandbox.
    pub(crate) fn is_lack_of_capacity(&self) -> bool {
        matches!(self, Self::NoCapacity(_) | Self::NoSlot(_) | Self::Shortage(_))
    }

    /// The agent failed.
    pub fn agent(source: impl Into<Source>) -> Self {
        Self::Agent(source.into())
    }

    /// The error of a wake. Says why, so that the owner can decide whether to start without the processes.
    pub(crate) fn of_wake(self) -> Self {
        match self {
            Self::Backend(source) | Self::Agent(source) => Self::WakeFailed(source),
            error @ Self::GaveUp(_) => Self::WakeFailed(error.into()),
            error => error,
        }
    }

    /// The error of storing processes.
    pub(crate) fn of_hibernation(self) -> Self {
        match self {
            Self::GaveUp(error) => Self::CannotStoreProcesses { reason: error.to_string() },
            error => error,
        }
    }

    /// Whether the sandbox cannot be hibernated as it is.
    pub(crate) fn prevents_hibernation(&self) -> bool {
        matches!(self, Self::CannotStoreProcesses { .. } | Self::ReadOnlyDisk)
    }

    /// The isolation backend failed.
    pub fn backend(source: impl Into<Source>) -> Self {
        Self::Backend(source.into())
    }

    /// Whether the same request may succeed later without a change by the caller or the operator.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::TooManyExecutions(_)
                | Self::NeverStarted(_)
                | Self::NoCapacity(_)
                | Self::NoSlot(_)
                | Self::Stopping
                | Self::AgentBusy { .. }
                | Self::HostExhausted { .. }
                | Self::SnapshotArriving { .. }
        ) || matches!(self, Self::Archive(error) if error.is_transient())
    }

    /// Whether the service is to blame, and the text is not for its clients.
    pub fn is_internal(&self) -> bool {
        self.is_sandbox_failure()
            || matches!(
                self,
                Self::WakeFailed(_)
                    | Self::GaveUp(_)
                    | Self::Archive(_)
                    | Self::Network(_)
                    | Self::Store(_)
                    | Self::Log(_)
                    | Self::TaskLost
            )
    }

    /// Whether the isolation backend failed. The sandbox's processes may be gone then.
    pub(crate) fn is_backend_failure(&self) -> bool {
        matches!(self, Self::Backend(_) | Self::HostExhausted { .. })
    }

    /// Whether the isolation backend or the agent failed. The sandbox's processes may be gone then.
    pub(crate) fn is_sandbox_failure(&self) -> bool {
        let is_agent_failure = matches!(
            self,
            Self::Agent(_) | Self::AgentBusy { .. } | Self::AgentTooOld | Self::PortUnreachable { .. }
        );
        is_agent_failure || self.is_backend_failure()
    }
}

impl From<base::TaskLost> for EngineError {
    fn from(_: base::TaskLost) -> Self {
        Self::TaskLost
    }
}

impl From<LinkError> for EngineError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::TooOld => Self::AgentTooOld,
            LinkError::Refused { kind: RefusalKind::Connect, message } => Self::PortUnreachable { message },
            LinkError::Refused { kind: RefusalKind::TooMany, message } => Self::AgentBusy { message },
            error => Self::agent(error),
        }
    }
}

impl From<DriverError> for EngineError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Exhausted { what, .. } => Self::HostExhausted { what, source: error.into() },
            DriverError::NotStorable { reason } => Self::CannotStoreProcesses { reason },
            error @ DriverError::OtherRelease { .. } => Self::OtherRelease(error.into()),
            DriverError::Failed { ref source, .. } if is_disk_full(&**source) => {
                Self::HostExhausted { what: DISK_SPACE, source: error.into() }
            }
            error => Self::backend(error),
        }
    }
}

impl From<StoreError> for EngineError {
    fn from(error: StoreError) -> Self {
        if error.is_disk_full() {
            return Self::HostExhausted { what: DISK_SPACE, source: error.into() };
        }
        Self::Store(error)
    }
}

/// Of a file of an execution.
impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        if is_disk_full(&error) {
            return Self::HostExhausted { what: DISK_SPACE, source: error.into() };
        }
        Self::Log(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_lower_layers_stay_the_source() {
        let full = DriverError::Exhausted { what: "disk", source: std::io::ErrorKind::StorageFull.into() };
        let error = EngineError::from(full);
        assert!(matches!(error, EngineError::HostExhausted { what: "disk", .. }));
        assert!(error.is_transient() && error.is_backend_failure());
        assert!(error.source().is_some_and(|source| source.is::<DriverError>()));

        let full = DriverError::failed("copy the disk", std::io::Error::from_raw_os_error(28));
        assert!(matches!(EngineError::from(full), EngineError::HostExhausted { what: "disk space", .. }));
        let failed = DriverError::failed("copy the disk", std::io::Error::from_raw_os_error(5));
        assert!(matches!(EngineError::from(failed), EngineError::Backend(_)));

        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        for error in [EngineError::from(full()), StoreError::failed("cannot commit", full()).into()] {
            assert!(matches!(error, EngineError::HostExhausted { what: "disk space", .. }), "{error:?}");
        }
        assert!(matches!(EngineError::from(StoreError::Closed), EngineError::Store(_)));

        let error = EngineError::from(LinkError::Closed);
        assert!(!error.is_transient() && error.is_sandbox_failure());
        assert!(error.source().is_some_and(|source| source.is::<LinkError>()));
    }

    #[test]
    fn refusals_of_the_agent_have_their_own_variants() {
        let refused = |kind| EngineError::from(LinkError::Refused { kind, message: "why".to_owned() });
        assert!(
            matches!(refused(RefusalKind::Connect), EngineError::PortUnreachable { message } if message == "why")
        );
        assert!(refused(RefusalKind::TooMany).is_transient());
        assert!(matches!(refused(RefusalKind::Failed), EngineError::Agent(_)));
        assert!(matches!(EngineError::from(LinkError::TooOld), EngineError::AgentTooOld));
    }
}
