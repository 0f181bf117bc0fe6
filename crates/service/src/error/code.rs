//! Errors of the code interpreter.

use admission::error::ApiError;
use api::ErrorCode;

pub fn no_interpreter() -> ApiError {
    let message = "the sandbox's image has no code interpreter; create the sandbox from the image 'code-interpreter', or from one with a program 'code-interpreter' in its PATH";
    ApiError::new(ErrorCode::NoInterpreter, message)
}

pub fn no_context(id: &str) -> ApiError {
    let message = format!("the code interpreter has no context {}", rules::quoted(id));
    ApiError::new(ErrorCode::ContextNotFound, message).with_detail("contextId", id)
}

pub fn interpreter_disk_full() -> ApiError {
    let message = "the disk of the sandbox is full, so its code interpreter cannot start a kernel; delete files in the sandbox";
    ApiError::new(ErrorCode::DiskFull, message)
}

/// The program inside broke the protocol. Its bytes are for nobody.
pub fn invalid_interpreter(why: &str) -> ApiError {
    ApiError::new(ErrorCode::ExecutionError, format!("the code interpreter of the sandbox failed: {why}"))
}
