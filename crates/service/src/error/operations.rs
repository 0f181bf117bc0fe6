//! Errors of the engine.

use admission::error::{ApiError, Condition, exhausted, of_quota};
use api::{ErrorCode, SandboxId, SandboxState, Timestamp};
use engine::{
    AgentError, CapacityError, DaemonError, EngineError, HibernationError, HostError, SandboxError,
    SnapshotError,
};
use rules::{OperationRefusal, ReachedLimit, TimeMs};

use super::{executions, files, ports, snapshots};
/// Each sandbox has a range of user ids.
const IDS_KEY: &str = "runtime.uid_slots";

/// The kind of operation that failed. A fault of the sandbox has a different code for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    Execute,
    Files,
    Other,
}

/// The API error for an error of the engine. `id` is the sandbox id in the request, if any.
pub fn of_engine(error: EngineError, id: Option<&str>, operation: OperationKind) -> ApiError {
    let api_error = match error {
        EngineError::Sandbox(SandboxError::NotFound { terminated }) => {
            return not_found(id.unwrap_or_default(), terminated);
        }
        EngineError::Sandbox(SandboxError::Refused(OperationRefusal::NotFound)) => {
            return not_found(id.unwrap_or_default(), None);
        }
        EngineError::Sandbox(SandboxError::NameTaken { name, holder }) => {
            return name_taken(&name, holder.as_ref());
        }
        EngineError::Snapshot(SnapshotError::NotFound { id }) => return snapshots::no_snapshot(id.as_str()),
        EngineError::Sandbox(SandboxError::Refused(
            refusal @ OperationRefusal::InvalidState { state, .. },
        )) => ApiError::new(ErrorCode::InvalidState, refusal.to_string())
            .with_detail("state", state.to_string()),
        EngineError::Sandbox(error @ SandboxError::Workdir { .. }) => {
            ApiError::new(ErrorCode::InvalidConfig, error.to_string()).with_detail("field", "workdir")
        }
        EngineError::Sandbox(error @ SandboxError::ReadOnlyDisk) => {
            ApiError::new(ErrorCode::InvalidState, error.to_string())
        }
        EngineError::Snapshot(error) => snapshots::of_snapshot(error),
        EngineError::Hibernation(error) => of_hibernation(error),
        EngineError::Config(error) => reader::RequestRefusal::from(error).into(),
        EngineError::Capacity(error) => of_capacity(error),
        EngineError::Execution(error) => executions::of_execution(error),
        EngineError::Process(error) => ApiError::new(ErrorCode::InvalidRequest, error.to_string()),
        EngineError::Port(refusal) => ports::of_port(&refusal),
        EngineError::File(fault) => files::of_file(fault),
        EngineError::Agent(AgentError::Busy { message }) if operation == OperationKind::Files => {
            files::busy(message)
        }
        EngineError::Agent(AgentError::TooOld) if operation != OperationKind::Other => files::agent_too_old(),
        EngineError::Host(HostError::Exhausted { what, source }) => host_exhausted(what, source),
        EngineError::Daemon(DaemonError::GaveUp(error)) => gave_up(error),
        EngineError::Daemon(error @ DaemonError::Stopping) => ApiError::stopping(error),
        error @ (EngineError::Agent(_) | EngineError::Host(HostError::Backend(_))) => {
            of_sandbox_failure(error, operation)
        }
        error @ (EngineError::Host(HostError::Network(_) | HostError::Store(_))
        | EngineError::Daemon(DaemonError::TaskLost)) => ApiError::internal(error),
    };
    match id {
        Some(id) => api_error.with_detail("sandboxId", id),
        None => api_error,
    }
}

/// There is no room for what was requested.
fn of_capacity(error: CapacityError) -> ApiError {
    match error {
        CapacityError::NoCapacity(error) => exhausted(error.why(), error.limit()),
        CapacityError::Shortage(error) => exhausted(error.why(), error.limit()),
        CapacityError::Quota(error) => of_quota(&error),
        CapacityError::NoSlot(ranges) => {
            let why = "all ranges of user ids of this host are in use; terminate other sandboxes";
            exhausted(why, ReachedLimit::set_by_operator(ranges.into(), "sandboxes on this host", IDS_KEY))
        }
    }
}

fn host_exhausted(what: &str, source: engine::Source) -> ApiError {
    let why = format!("the host has no {what} left; terminate other sandboxes");
    exhausted(why, Condition::HostResources).with_cause(source)
}

/// The processes of the sandbox were not stored, or not continued.
fn of_hibernation(error: HibernationError) -> ApiError {
    match error {
        HibernationError::NotStorable { .. } => {
            ApiError::new(ErrorCode::IsolationMismatch, error.to_string())
        }
        HibernationError::OtherRelease(_) => {
            let remedy = "install that release, or give the processes up with 'cold' true";
            ApiError::new(ErrorCode::IsolationMismatch, format!("{error}; {remedy}"))
        }
        HibernationError::WakeFailed(source) => wake_failed(source),
    }
}

fn wake_failed(source: engine::Source) -> ApiError {
    let message = format!(
        "the processes of the sandbox could not be continued: {source}. They are still stored: try again, or give \
         them up with 'cold' true"
    );
    ApiError::new(ErrorCode::InternalError, message).with_cause(source)
}

fn gave_up(error: rules::GaveUp) -> ApiError {
    let message = format!("{error}; the operator can find the reason in the log of the service");
    ApiError::new(ErrorCode::InternalError, message).with_cause(error)
}

/// The agent or the isolation backend failed.
fn of_sandbox_failure(error: EngineError, operation: OperationKind) -> ApiError {
    match operation {
        OperationKind::Files => {
            let message = "the sandbox failed, was hibernated or was rolled back during the file operation, which may have been completed";
            ApiError::new(ErrorCode::ExecutionError, message).with_cause(error)
        }
        OperationKind::Execute => {
            let message = "the sandbox failed, was hibernated or was rolled back during the command, which may have run partly or completely";
            ApiError::new(ErrorCode::ExecutionError, message).with_cause(error)
        }
        OperationKind::Other => ApiError::internal(error),
    }
}

/// The sandbox does not exist, or is terminated: then its owner gets the time and the reason.
pub fn not_found(id: &str, terminated: Option<(TimeMs, String)>) -> ApiError {
    let id_text = rules::quoted(id);
    let (message, ended) = match terminated {
        None => (format!("sandbox {id_text} does not exist"), None),
        Some((at, reason)) => {
            let at = Timestamp::from(at).to_string();
            (format!("sandbox {id_text} was terminated at {at}, reason '{reason}'"), Some((at, reason)))
        }
    };
    let error = ApiError::new(ErrorCode::SandboxNotFound, message).with_detail("sandboxId", id);
    match ended {
        None => error,
        Some((at, reason)) => error
            .with_detail("state", SandboxState::Terminated.to_string())
            .with_detail("terminatedAt", at)
            .with_detail("reason", reason),
    }
}

/// Another sandbox of the account has the name.
fn name_taken(name: &str, holder: Option<&SandboxId>) -> ApiError {
    let error = |by: String| {
        let message = format!(
            "name is {}, which is in use by {by}; choose another name, or terminate that sandbox",
            rules::quoted(name)
        );
        ApiError::new(ErrorCode::InvalidState, message).with_detail("field", "name")
    };
    match holder {
        Some(id) => error(format!("the sandbox {id}")).with_detail("sandboxId", id.as_str()),
        None => error("a sandbox that is being created".to_owned()),
    }
}
