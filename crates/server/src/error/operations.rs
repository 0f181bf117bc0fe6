//! What is told of what the engine did not do.

use api::{ErrorCode, SandboxState, Timestamp};
use engine::EngineError;
use rules::{QuotaExceeded, Refusal, TimeMs};

use super::{ApiError, executions, files, ports};

/// Commands are usually short.
const SLOT_RETRY_S: u64 = 1;
/// Room comes back when a sandbox ends.
const CAPACITY_RETRY_S: u64 = 10;
/// A daemon is back after a restart.
const STOPPING_RETRY_S: u64 = 5;

/// What was asked of the engine: the same fault has another name while a command is executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum During {
    Execute,
    Files,
    Other,
}

/// The engine's refusal or fault. `id` is the sandbox as the client named it, where it named one.
pub fn of_engine(error: EngineError, id: Option<&str>, during: During) -> ApiError {
    let told = match error {
        EngineError::NotFound { terminated } => return not_found(id.unwrap_or_default(), terminated),
        EngineError::Refused(Refusal::NotFound) => return not_found(id.unwrap_or_default(), None),
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
        error @ EngineError::HostExhausted { what, .. } => {
            let message = format!("the host ran out of {what}; try again when other sandboxes have ended");
            exhausted(message, CAPACITY_RETRY_S).with_cause(error)
        }
        EngineError::Port(refusal) => ports::of_port(&refusal),
        EngineError::NoSuchExecution { id } => executions::no_execution(id.as_str()),
        EngineError::ExecutionEnded { id, state } => executions::ended(&id, state),
        EngineError::NoStdin { id } => executions::stdin_closed(&id),
        EngineError::NoTerminal { id } => executions::not_a_terminal(&id),
        EngineError::File(fault) => files::of_file(fault),
        EngineError::AgentBusy { message } if during == During::Files => files::busy(message),
        EngineError::AgentTooOld if during == During::Files => files::agent_too_old(),
        error @ (EngineError::Agent(_)
        | EngineError::AgentBusy { .. }
        | EngineError::AgentTooOld
        | EngineError::PortUnreachable { .. }
        | EngineError::Backend(_)) => match during {
            During::Files => {
                let message =
                    "the sandbox failed during the file operation; whether it was carried out is not known";
                ApiError::new(ErrorCode::ExecutionError, message).with_cause(error)
            }
            During::Execute => {
                let message = "the sandbox failed while the command was executed; whether it ran, and how far, \
                               is not known";
                ApiError::new(ErrorCode::ExecutionError, message).with_cause(error)
            }
            During::Other => ApiError::internal(error),
        },
        error @ (EngineError::Network(_)
        | EngineError::Store(_)
        | EngineError::Log(_)
        | EngineError::TaskLost) => ApiError::internal(error),
    };
    match id {
        Some(id) => told.with_detail("sandboxId", id),
        None => told,
    }
}

/// There is no such sandbox, or there was one: then its owner is told when and why it ended.
pub fn not_found(id: &str, terminated: Option<(TimeMs, String)>) -> ApiError {
    let shown = rules::shown(id);
    let (message, ended) = match terminated {
        None => (format!("there is no sandbox {shown}"), None),
        Some((at, reason)) => {
            let at = Timestamp::from(at).to_string();
            (format!("sandbox {shown} was terminated at {at}, reason '{reason}'"), Some((at, reason)))
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

/// An account has what it may have. Some quotas are free again in moments, others when their owner frees something.
pub fn of_quota(error: &QuotaExceeded) -> ApiError {
    ApiError::new(ErrorCode::QuotaExceeded, error.to_string())
        .with_detail("quota", error.quota.key())
        .with_detail("used", error.used)
        .with_detail("requested", error.asked)
        .with_detail("allowed", error.allowed)
        .retry_after(if error.quota.is_momentary() { SLOT_RETRY_S } else { CAPACITY_RETRY_S })
}

fn exhausted(message: String, retry_after_s: u64) -> ApiError {
    ApiError::new(ErrorCode::ResourceExhausted, message).retry_after(retry_after_s)
}
