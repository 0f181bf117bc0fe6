//! Errors of file operations.

use admission::error::{ApiError, RefusalCode};
use api::ErrorCode;
use axum::http::StatusCode;
use engine::{FileError, FileErrorKind, MAX_FILE_OPS, MAX_WATCHES};
use rules::ReachedLimit;

/// File operations are usually short.
const RETRY_AFTER_S: u64 = 1;

/// The API error for an error that the agent reported.
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
        FileErrorKind::Invalid | FileErrorKind::Interrupted | FileErrorKind::UserMissing => {
            ErrorCode::InvalidRequest
        }
        FileErrorKind::Failed => ErrorCode::ExecutionError,
    };
    ApiError::new(code, message)
}

/// Too many file operations are in progress in the sandbox. `why` is the agent's message.
pub fn busy(why: String) -> ApiError {
    let limit = ReachedLimit::fixed(MAX_FILE_OPS as u64, "file operations at a time in a sandbox");
    ApiError::refused(RefusalCode::RateLimited, why, limit, RETRY_AFTER_S)
}

/// Too many directories of the sandbox are watched. `why` is the agent's message.
pub fn too_many_watches(why: String) -> ApiError {
    let limit = ReachedLimit::fixed(MAX_WATCHES as u64, "watches at a time in a sandbox");
    ApiError::refused(RefusalCode::RateLimited, why, limit, RETRY_AFTER_S)
}

/// The sandbox's agent is of an earlier version, without file operations.
pub fn agent_too_old() -> ApiError {
    let message = "the sandbox was started by an earlier version of the service, which does not have this operation; create \
                   a new sandbox";
    ApiError::new(ErrorCode::InvalidState, message)
}
