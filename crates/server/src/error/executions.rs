//! Errors of detached executions.

use api::ErrorCode;
use engine::{ExecutionId, ExecutionState};

use super::ApiError;

/// The execution never existed, or it was removed because newer ones have ended.
pub fn no_execution(id: &str) -> ApiError {
    let message = format!("the sandbox has no execution {}", rules::quoted(id));
    ApiError::new(ErrorCode::ExecutionNotFound, message).with_detail("executionId", id)
}

/// The execution accepts neither input nor signals.
pub fn ended(id: &ExecutionId, state: ExecutionState) -> ApiError {
    let how = match state {
        ExecutionState::Lost => "was lost: its processes ended with those of the sandbox",
        ExecutionState::Running | ExecutionState::Exited => "has ended",
    };
    ApiError::new(ErrorCode::ExecutionEnded, format!("execution {id} {how}"))
        .with_detail("executionId", id.as_str())
}

pub fn stdin_closed(id: &ExecutionId) -> ApiError {
    let message = format!(
        "the standard input of execution {id} is not open: it was closed, or the execution was started without 'openStdin'"
    );
    ApiError::new(ErrorCode::StdinClosed, message).with_detail("executionId", id.as_str())
}

pub fn not_a_terminal(id: &ExecutionId) -> ApiError {
    let message = format!("execution {id} has no terminal; read its output at …/output");
    ApiError::new(ErrorCode::NotATerminal, message).with_detail("executionId", id.as_str())
}
