//! Errors of the engine.

use std::fmt::Display;

use api::{ErrorCode, SandboxId, SandboxState, Timestamp};
use engine::EngineError;
use rules::{OperationRefusal, QuotaExceeded, ReachedLimit, TimeMs};

use super::refusal::RefusedBy;
use super::{ApiError, Condition, RefusalCode, executions, files, ports, snapshots};
use crate::limiter::Refused;

/// Commands are usually short.
const SLOT_RETRY_S: u64 = 1;
/// Capacity becomes free when a sandbox is paused or terminated.
const CAPACITY_RETRY_S: u64 = 10;
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
        EngineError::NotFound { terminated } => return not_found(id.unwrap_or_default(), terminated),
        EngineError::Refused(OperationRefusal::NotFound) => return not_found(id.unwrap_or_default(), None),
        EngineError::NameTaken { name, holder } => return name_taken(&name, holder.as_ref()),
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
        error @ EngineError::ReadOnlyDisk => ApiError::new(ErrorCode::InvalidState, error.to_string()),
        EngineError::WakeFailed(source) => wake_failed(source),
        EngineError::GaveUp(error) => gave_up(error),
        EngineError::Config(error) => reader::RequestRefusal::from(error).into(),
        EngineError::Refused(refusal @ OperationRefusal::InvalidState { state, .. }) => {
            ApiError::new(ErrorCode::InvalidState, refusal.to_string())
                .with_detail("state", state.to_string())
        }
        error @ EngineError::Workdir { .. } => {
            ApiError::new(ErrorCode::InvalidConfig, error.to_string()).with_detail("field", "workdir")
        }
        EngineError::NeverStarted(error) => ApiError::new(ErrorCode::ExecutionTimeout, error.to_string()),
        error @ (EngineError::TooManyExecutions(_)
        | EngineError::NoCapacity(_)
        | EngineError::Shortage(_)
        | EngineError::Quota(_)
        | EngineError::NoSlot(_)
        | EngineError::HostExhausted { .. }
        | EngineError::Stopping) => of_refusal(error),
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

/// What the engine refuses for now.
fn of_refusal(error: EngineError) -> ApiError {
    match error {
        EngineError::TooManyExecutions(error) => {
            ApiError::refused(RefusalCode::RateLimited, error.why(), error.limit(), SLOT_RETRY_S)
        }
        EngineError::NoCapacity(error) => exhausted(error.why(), error.limit()),
        EngineError::Shortage(error) => exhausted(error.why(), error.limit()),
        EngineError::Quota(error) => of_quota(&error),
        EngineError::NoSlot(ranges) => {
            let why = "all ranges of user ids of this host are in use; terminate other sandboxes";
            exhausted(why, ReachedLimit::set_by_operator(ranges.into(), "sandboxes on this host", IDS_KEY))
        }
        EngineError::HostExhausted { what, .. } => {
            let why = format!("the host has no {what} left; terminate other sandboxes");
            exhausted(why, Condition::HostResources).with_cause(error)
        }
        EngineError::Stopping => ApiError::stopping(error),
        error => ApiError::internal(error),
    }
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

/// A quota is exceeded. Quotas of requests in flight become free within seconds, others when the owner frees resources.
pub fn of_quota(error: &QuotaExceeded) -> ApiError {
    let retry_after_s = if error.quota.is_momentary() { SLOT_RETRY_S } else { CAPACITY_RETRY_S };
    ApiError::refused(RefusalCode::QuotaExceeded, error.why(), error.limit(), retry_after_s)
        .with_detail("quota", error.quota.key())
        .with_detail("used", error.used)
        .with_detail("requested", error.requested)
        .with_detail("allowed", error.allowed)
}

/// A rate limit is used up.
pub fn rate_limited(refused: &Refused) -> ApiError {
    let Refused { limit, retry_after_s, .. } = refused;
    ApiError::refused(RefusalCode::RateLimited, "rate limit exceeded", limit.clone(), *retry_after_s)
}

fn exhausted(why: impl Display, by: impl Into<RefusedBy>) -> ApiError {
    ApiError::refused(RefusalCode::ResourceExhausted, why, by, CAPACITY_RETRY_S)
}
