//! What is told of work among files that was not done.

use api::ErrorCode;
use axum::http::StatusCode;
use engine::{FileErrorKind, FileFault, LinkError, RefusalKind};

use super::ApiError;

/// An operation on files is, on the average, soon over.
const PLACE_RETRY_S: u64 = 1;

/// What the sandbox said.
pub fn of_file(fault: FileFault) -> ApiError {
    let FileFault { kind, message } = fault;
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

/// Why the agent did not do it.
pub fn of_agent(error: LinkError) -> ApiError {
    match error {
        LinkError::Refused { kind: RefusalKind::TooMany, message } => {
            ApiError::new(ErrorCode::RateLimited, message).retry_after(PLACE_RETRY_S)
        }
        LinkError::TooOld => {
            let message = "the sandbox was started by an earlier version of the service, whose sandboxes have no operations \
                           on files; a new sandbox has them";
            ApiError::new(ErrorCode::InvalidState, message)
        }
        error => {
            let message =
                "the sandbox failed during the operation on its files; whether it was done is not known";
            ApiError::new(ErrorCode::ExecutionError, message).with_cause(error)
        }
    }
}
