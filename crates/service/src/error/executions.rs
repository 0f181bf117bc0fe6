//! Errors of detached executions.

use admission::error::ApiError;
use api::ErrorCode;
use engine::{ExecutionEnd, ExecutionError, ExecutionId};

use admission::error::RefusalCode;

/// Commands are usually short.
pub(super) const SLOT_RETRY_S: u64 = 1;

/// The execution never existed, or it was removed because newer ones have ended.
pub fn no_execution(id: &str) -> ApiError {
    let message = format!("the sandbox has no execution {}", rules::quoted(id));
    ApiError::new(ErrorCode::ExecutionNotFound, message).with_detail("executionId", id)
}

/// What the engine refuses of commands and of detached executions.
pub fn of_execution(error: ExecutionError) -> ApiError {
    match error {
        ExecutionError::TooMany(error) => {
            ApiError::refused(RefusalCode::RateLimited, error.why(), error.limit(), SLOT_RETRY_S)
        }
        ExecutionError::NeverStarted(error) => ApiError::new(ErrorCode::ExecutionTimeout, error.to_string()),
        ExecutionError::NotFound { id } => no_execution(id.as_str()),
        ExecutionError::Ended { id, end } => ended(&id, end),
        ExecutionError::NoStdin { id } => stdin_closed(&id),
        ExecutionError::NoTerminal { id } => not_a_terminal(&id),
        error @ ExecutionError::Log(_) => ApiError::internal(error),
    }
}

/// The execution accepts neither input nor signals.
fn ended(id: &ExecutionId, end: ExecutionEnd) -> ApiError {
    let how = match end {
        ExecutionEnd::Lost => "was lost: its processes ended with those of the sandbox",
        ExecutionEnd::Exited => "has ended",
    };
    ApiError::new(ErrorCode::ExecutionEnded, format!("execution {id} {how}"))
        .with_detail("executionId", id.as_str())
}

fn stdin_closed(id: &ExecutionId) -> ApiError {
    let message = format!(
        "the standard input of execution {id} is not open: it was closed, or the execution was started without 'openStdin'"
    );
    ApiError::new(ErrorCode::StdinClosed, message).with_detail("executionId", id.as_str())
}

pub fn not_a_terminal(id: &ExecutionId) -> ApiError {
    let message = format!("execution {id} has no terminal; read its output at …/output");
    ApiError::new(ErrorCode::NotATerminal, message).with_detail("executionId", id.as_str())
}
