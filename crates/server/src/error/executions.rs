//! What is told of detached executions.

use api::ErrorCode;
use engine::{ExecutionId, ExecutionState};

use super::ApiError;

/// There is no such execution, or it is not kept any more.
pub fn no_execution(id: &str) -> ApiError {
    let message = format!("there is no execution {} of this sandbox", rules::shown(id));
    ApiError::new(ErrorCode::ExecutionNotFound, message).with_detail("executionId", id)
}

/// It takes no input and no signals any more.
pub fn ended(id: &ExecutionId, state: ExecutionState) -> ApiError {
    let how = match state {
        ExecutionState::Lost => "was lost with its sandbox's processes",
        ExecutionState::Running | ExecutionState::Exited => "has ended",
    };
    ApiError::new(ErrorCode::ExecutionEnded, format!("execution {id} {how}"))
        .with_detail("executionId", id.as_str())
}

pub fn stdin_closed(id: &ExecutionId) -> ApiError {
    let message = format!(
        "the standard input of execution {id} is not open: it was closed, or 'openStdin' was not asked for"
    );
    ApiError::new(ErrorCode::StdinClosed, message).with_detail("executionId", id.as_str())
}

pub fn not_a_terminal(id: &ExecutionId) -> ApiError {
    let message = format!("execution {id} has no terminal; its output is at …/output");
    ApiError::new(ErrorCode::NotATerminal, message).with_detail("executionId", id.as_str())
}
