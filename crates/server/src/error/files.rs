//! What is told of work among files that was not done.

use api::ErrorCode;
use axum::http::StatusCode;
use engine::{FileError, FileErrorKind};

use super::ApiError;

/// An operation on files is, on the average, soon over.
const PLACE_RETRY_S: u64 = 1;

/// What the sandbox said.
pub fn of_file(fault: FileError) -> ApiError {
    let FileError { kind, message } = fault;
    let code = match kind {
        FileErrorKind::NotFound => ErrorCode::FileNotFound,
        FileErrorKind::Exists => ErrorCode::FileExists,
        FileErrorKind::NotAFile => ErrorCode::NotAFile,
        FileErrorKind::NotADirectory => ErrorCode::NotADirectory,
        FileErrorKind::NotEmpty => ErrorCode::DirectoryNotEmpty,
        FileErrorKind::Denied => ErrorCode::PermissionDenied,
        FileErrorKind::DiskFull => ErrorCode::DiskFull,
        FileErrorKind::Range => {
            return ApiError::new(ErrorCode::InvalidRequest, message)
                .with_status(StatusCode::RANGE_NOT_SATISFIABLE);
        }
        FileErrorKind::Invalid | FileErrorKind::Interrupted => ErrorCode::InvalidRequest,
        FileErrorKind::Failed => ErrorCode::ExecutionError,
    };
    ApiError::new(code, message)
}

/// The sandbox has too many file operations under way.
pub fn busy(message: String) -> ApiError {
    ApiError::new(ErrorCode::RateLimited, message).retry_after(PLACE_RETRY_S)
}

/// The sandbox's agent comes from a version of the service without file operations.
pub fn agent_too_old() -> ApiError {
    let message = "the sandbox was started by an earlier version of the service, which has no file operations; create a \
                   new sandbox";
    ApiError::new(ErrorCode::InvalidState, message)
}
