//! Why the engine refused or failed a request: an error for each part of the engine, and [`EngineError`] for all. `service` has the only
//! table from these errors to HTTP statuses.

mod agent;
mod capacity;
mod class;
mod host;
mod sandbox;
mod snapshot;
mod work;

use std::error::Error;

use base::is_disk_full;
use driver::DriverError;
use store::StoreError;

pub use agent::AgentError;
pub use capacity::CapacityError;
pub use class::{ErrorClass, Retry};
pub use host::{DaemonError, HostError};
pub use sandbox::{HibernationError, SandboxError};
pub use snapshot::SnapshotError;
pub use work::{ExecutionEnd, ExecutionError, FileError, ProcessError, ProcessRefusal};

use crate::counters::Counters;
use crate::link::LinkError;

/// The error that caused another one. Boxed, so that callers do not depend on the types of the layers below.
pub type Source = Box<dyn Error + Send + Sync>;

/// The error of a request to the engine.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Hibernation(#[from] HibernationError),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error(transparent)]
    Capacity(#[from] CapacityError),
    #[error(transparent)]
    Execution(#[from] ExecutionError),
    #[error(transparent)]
    Process(#[from] ProcessError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    #[error(transparent)]
    Config(#[from] rules::ConfigError),
    #[error(transparent)]
    Port(#[from] rules::PortRefusal),
}

impl EngineError {
    /// Who is to blame, and whether a repetition can help.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Sandbox(error) => error.class(),
            Self::Hibernation(error) => error.class(),
            Self::Snapshot(error) => error.class(),
            Self::Capacity(error) => error.class(),
            Self::Execution(error) => error.class(),
            Self::Process(error) => error.class(),
            Self::Agent(error) => error.class(),
            Self::Host(error) => error.class(),
            Self::Daemon(error) => error.class(),
            Self::File(_) | Self::Config(_) | Self::Port(_) => ErrorClass::Refused(Retry::Useless),
        }
    }

    /// Whether the same request may succeed later without a change by the caller or the operator.
    pub fn is_transient(&self) -> bool {
        match self.class() {
            ErrorClass::Refused(retry)
            | ErrorClass::AgentFailed(retry)
            | ErrorClass::BackendFailed(retry)
            | ErrorClass::ServiceFailed(retry) => retry == Retry::Useful,
        }
    }

    /// Whether the service is to blame, and the text is not for its clients.
    pub fn is_internal(&self) -> bool {
        match self.class() {
            ErrorClass::AgentFailed(_) | ErrorClass::BackendFailed(_) | ErrorClass::ServiceFailed(_) => true,
            ErrorClass::Refused(_) => false,
        }
    }

    /// Whether the isolation backend failed. The sandbox's processes may be gone then.
    pub(crate) fn is_backend_failure(&self) -> bool {
        matches!(self.class(), ErrorClass::BackendFailed(_))
    }

    /// Whether the isolation backend or the agent failed. The sandbox's processes may be gone then.
    pub(crate) fn is_sandbox_failure(&self) -> bool {
        matches!(self.class(), ErrorClass::AgentFailed(_) | ErrorClass::BackendFailed(_))
    }

    /// Whether the host has no room for another sandbox.
    pub(crate) fn is_lack_of_capacity(&self) -> bool {
        matches!(self, Self::Capacity(error) if error.is_of_host())
    }

    /// Whether the sandbox cannot be hibernated as it is.
    pub(crate) fn prevents_hibernation(&self) -> bool {
        matches!(
            self,
            Self::Hibernation(HibernationError::NotStorable { .. })
                | Self::Sandbox(SandboxError::ReadOnlyDisk)
        )
    }

    /// Counts a refused create, snapshot, resume or command.
    pub(crate) fn count_refusal(&self, counters: &Counters) {
        match self {
            Self::Capacity(error) => error.count(counters),
            Self::Execution(ExecutionError::TooMany(_)) => counters.refused_executions.add(1),
            Self::Sandbox(_)
            | Self::Hibernation(_)
            | Self::Snapshot(_)
            | Self::Execution(_)
            | Self::Process(_)
            | Self::File(_)
            | Self::Agent(_)
            | Self::Host(_)
            | Self::Daemon(_)
            | Self::Config(_)
            | Self::Port(_) => {}
        }
    }

    /// The agent failed.
    pub fn agent(source: impl Into<Source>) -> Self {
        AgentError::Failed(source.into()).into()
    }

    /// The isolation backend failed.
    pub fn backend(source: impl Into<Source>) -> Self {
        HostError::Backend(source.into()).into()
    }

    /// The error of a wake. Says why, so that the owner can decide whether to start without the processes.
    pub(crate) fn of_wake(self) -> Self {
        match self {
            Self::Host(HostError::Backend(source)) | Self::Agent(AgentError::Failed(source)) => {
                HibernationError::WakeFailed(source).into()
            }
            Self::Daemon(error @ DaemonError::GaveUp(_)) => HibernationError::WakeFailed(error.into()).into(),
            error => error,
        }
    }

    /// The error of storing processes.
    pub(crate) fn of_hibernation(self) -> Self {
        match self {
            Self::Daemon(DaemonError::GaveUp(error)) => {
                HibernationError::NotStorable { reason: error.to_string() }.into()
            }
            error => error,
        }
    }
}

/// What lower layers report becomes the error of a part.
macro_rules! belongs_to {
    ($($source:ty => $part:ident,)*) => {
        $(impl From<$source> for EngineError {
            fn from(error: $source) -> Self {
                Self::$part(error.into())
            }
        })*
    };
}

belongs_to! {
    rules::OperationRefusal => Sandbox,
    archive::ArchiveError => Snapshot,
    rules::Exhausted => Capacity,
    rules::Shortage => Capacity,
    rules::QuotaExceeded => Capacity,
    rules::TooManyExecutions => Execution,
    rules::NeverStarted => Execution,
    LinkError => Agent,
    net::NetError => Host,
    StoreError => Host,
    rules::GaveUp => Daemon,
    base::TaskLost => Daemon,
}

impl From<DriverError> for EngineError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Exhausted { what, .. } => HostError::Exhausted { what, source: error.into() }.into(),
            DriverError::NotStorable { reason } => HibernationError::NotStorable { reason }.into(),
            error @ DriverError::OtherRelease { .. } => HibernationError::OtherRelease(error.into()).into(),
            DriverError::Failed { ref source, .. } if is_disk_full(&**source) => {
                HostError::disk_full(error).into()
            }
            error => Self::backend(error),
        }
    }
}

/// Of a file of an execution.
impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        if is_disk_full(&error) {
            return HostError::disk_full(error).into();
        }
        ExecutionError::Log(error).into()
    }
}

#[cfg(test)]
mod tests {
    use driver::DriverStep;
    use guest_proto::RefusalKind;

    use super::*;

    #[test]
    fn errors_of_lower_layers_stay_the_source() {
        let full = DriverError::Exhausted { what: "disk", source: std::io::ErrorKind::StorageFull.into() };
        let error = EngineError::from(full);
        assert!(matches!(error, EngineError::Host(HostError::Exhausted { what: "disk", .. })));
        assert!(error.is_transient() && error.is_backend_failure());
        assert!(error.source().is_some_and(|source| source.is::<DriverError>()));

        let full = DriverError::failed(DriverStep::CopyDisk, std::io::Error::from_raw_os_error(28));
        assert!(matches!(
            EngineError::from(full),
            EngineError::Host(HostError::Exhausted { what: "disk space", .. })
        ));
        let failed = DriverError::failed(DriverStep::CopyDisk, std::io::Error::from_raw_os_error(5));
        assert!(matches!(EngineError::from(failed), EngineError::Host(HostError::Backend(_))));

        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        for error in [EngineError::from(full()), StoreError::failed("cannot commit", full()).into()] {
            assert!(
                matches!(error, EngineError::Host(HostError::Exhausted { what: "disk space", .. })),
                "{error:?}"
            );
        }
        assert!(matches!(EngineError::from(StoreError::Closed), EngineError::Host(HostError::Store(_))));

        let error = EngineError::from(LinkError::Closed);
        assert!(!error.is_transient() && error.is_sandbox_failure());
        assert!(error.source().is_some_and(|source| source.is::<LinkError>()));
    }

    #[test]
    fn a_class_says_who_is_to_blame_and_whether_a_repetition_can_help() {
        use ErrorClass::{AgentFailed, BackendFailed, Refused, ServiceFailed};
        use Retry::{Useful, Useless};
        let table: [(EngineError, ErrorClass); 8] = [
            (SandboxError::NotFound { terminated: None }.into(), Refused(Useless)),
            (DaemonError::Stopping.into(), Refused(Useful)),
            (CapacityError::NoSlot(1).into(), Refused(Useful)),
            (rules::Shortage::Disk { free_mb: 1, needed_mb: 2 }.into(), Refused(Useless)),
            (AgentError::Busy { message: String::new() }.into(), AgentFailed(Useful)),
            (AgentError::TooOld.into(), AgentFailed(Useless)),
            (HostError::disk_full("no space left").into(), BackendFailed(Useful)),
            (HibernationError::WakeFailed("lost".into()).into(), ServiceFailed(Useless)),
        ];
        for (error, class) in table {
            assert_eq!(error.class(), class, "{error:?}");
            assert_eq!(error.is_internal(), !matches!(class, Refused(_)), "{error:?}");
        }
        let no_room = [
            EngineError::from(CapacityError::NoSlot(1)),
            rules::Shortage::Disk { free_mb: 1, needed_mb: 2 }.into(),
        ];
        assert!(no_room.iter().all(EngineError::is_lack_of_capacity));
    }

    #[test]
    fn refusals_of_the_agent_have_their_own_variants() {
        let refused = |kind| EngineError::from(LinkError::Refused { kind, message: "why".to_owned() });
        assert!(
            matches!(refused(RefusalKind::Connect), EngineError::Agent(AgentError::PortUnreachable { message }) if message == "why")
        );
        assert!(refused(RefusalKind::TooMany).is_transient());
        assert!(matches!(refused(RefusalKind::Failed), EngineError::Agent(AgentError::Failed(_))));
        assert!(matches!(EngineError::from(LinkError::TooOld), EngineError::Agent(AgentError::TooOld)));
    }
}
