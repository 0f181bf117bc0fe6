//! Errors of the engine.

use api::{ErrorCode, SandboxState, Timestamp};
use engine::EngineError;
use rules::{QuotaExceeded, Refusal, TimeMs};

use super::{ApiError, executions, files, ports, snapshots};

/// Commands are usually short.
const SLOT_RETRY_S: u64 = 1;
/// Capacity becomes free when a sandbox is paused or terminated.
const CAPACITY_RETRY_S: u64 = 10;
/// A restart of the daemon takes a few seconds.
const STOPPING_RETRY_S: u64 = 5;

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
        EngineError::NotFound { terminated } => return not_found(id.unwrap_or_default(), terminated),
        EngineError::Refused(Refusal::NotFound) => return not_found(id.unwrap_or_default(), None),
        EngineError::NoSuchSnapshot { id } => return snapshots::no_snapshot(id.as_str()),
        error @ (EngineError::ForeignSnapshot { .. }
        | EngineError::SnapshotOfOtherHost { .. }
        | EngineError::AdoptedElsewhere
        | EngineError::SnapshotArriving { .. }
        | EngineError::OtherImage { .. }
        | EngineError::WeakIsolation { .. }
        | EngineError::Archive(_)) => snapshots::of_snapshot(error),
        error @ (EngineError::CannotStoreProcesses { .. } | EngineError::OtherRelease(_)) => {
            of_isolation(&error)
        }
        EngineError::WakeFailed(source) => wake_failed(source),
        EngineError::GaveUp(error) => gave_up(error),
        EngineError::Config(error) => reader::Refusal::from(error).into(),
        EngineError::Refused(refusal @ Refusal::InvalidState { state, .. }) => {
            ApiError::new(ErrorCode::InvalidState, refusal.to_string())
                .with_detail("state", state.to_string())
        }
        error @ EngineError::Workdir { .. } => {
            ApiError::new(ErrorCode::InvalidConfig, error.to_string()).with_detail("field", "workdir")
        }
        EngineError::TooManyExecutions(error) => {
            ApiError::new(ErrorCode::RateLimited, error.to_string()).retry_after(SLOT_RETRY_S)
        }
        EngineError::NeverStarted(error) => ApiError::new(ErrorCode::ExecutionTimeout, error.to_string()),
        EngineError::NoCapacity(error) => {
            exhausted(error.to_string(), CAPACITY_RETRY_S).with_detail("key", error.resource.key())
        }
        EngineError::Shortage(error) => {
            exhausted(error.to_string(), CAPACITY_RETRY_S).with_detail("key", error.key())
        }
        EngineError::Quota(error) => of_quota(&error),
        error @ EngineError::NoSlot(_) => exhausted(error.to_string(), CAPACITY_RETRY_S),
        error @ EngineError::Stopping => exhausted(error.to_string(), STOPPING_RETRY_S),
        error @ EngineError::HostExhausted { what, .. } => host_exhausted(what, error),
        EngineError::Port(refusal) => ports::of_port(&refusal),
        EngineError::NoSuchExecution { id } => executions::no_execution(id.as_str()),
        EngineError::ExecutionEnded { id, state } => executions::ended(&id, state),
        EngineError::NoStdin { id } => executions::stdin_closed(&id),
        EngineError::NoTerminal { id } => executions::not_a_terminal(&id),
        EngineError::File(fault) => files::of_file(fault),
        error @ (EngineError::ProcessRefused { .. }
        | EngineError::NoSuchProcess { .. }
        | EngineError::ProcessInvalid(_)) => ApiError::new(ErrorCode::InvalidRequest, error.to_string()),
        EngineError::AgentBusy { message } if operation == OperationKind::Files => files::busy(message),
        EngineError::AgentTooOld if operation != OperationKind::Other => files::agent_too_old(),
        EngineError::NoInterpreter => super::code::no_interpreter(),
        error @ EngineError::InterpreterFailed { .. } => super::code::interpreter_failed(&error),
        error @ (EngineError::Agent(_)
        | EngineError::AgentBusy { .. }
        | EngineError::AgentTooOld
        | EngineError::PortUnreachable { .. }
        | EngineError::Backend(_)) => of_sandbox_failure(error, operation),
        error @ (EngineError::Network(_)
        | EngineError::Store(_)
        | EngineError::Log(_)
        | EngineError::TaskLost) => ApiError::internal(error),
    };
    match id {
        Some(id) => api_error.with_detail("sandboxId", id),
        None => api_error,
    }
}

/// `what` is the resource of which the host has no more.
fn host_exhausted(what: &str, error: EngineError) -> ApiError {
    let message = format!("the host has no {what} left; try again when other sandboxes have been terminated");
    exhausted(message, CAPACITY_RETRY_S).with_cause(error)
}

/// The isolation of the sandbox, or its release, does not allow the operation.
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

fn of_isolation(error: &EngineError) -> ApiError {
    let remedy = match error {
        EngineError::OtherRelease(_) => "; install that release, or give the processes up with 'cold' true",
        _ => "",
    };
    ApiError::new(ErrorCode::IsolationMismatch, format!("{error}{remedy}"))
}

/// The agent or the isolation backend failed.
fn of_sandbox_failure(error: EngineError, operation: OperationKind) -> ApiError {
    match operation {
        OperationKind::Files => {
            let message = "the sandbox failed during the file operation, which may have been completed";
            ApiError::new(ErrorCode::ExecutionError, message).with_cause(error)
        }
        OperationKind::Execute => {
            let message = "the sandbox failed during the command, which may have run partly or completely";
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

/// A quota is exceeded. Quotas of requests in flight become free within seconds, others when the owner frees resources.
pub fn of_quota(error: &QuotaExceeded) -> ApiError {
    ApiError::new(ErrorCode::QuotaExceeded, error.to_string())
        .with_detail("quota", error.quota.key())
        .with_detail("used", error.used)
        .with_detail("requested", error.requested)
        .with_detail("allowed", error.allowed)
        .retry_after(if error.quota.is_momentary() { SLOT_RETRY_S } else { CAPACITY_RETRY_S })
}

fn exhausted(message: String, retry_after_s: u64) -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, message).retry_after(retry_after_s)
}
