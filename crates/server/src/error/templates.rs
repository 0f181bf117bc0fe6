//! Errors of templates.

use api::ErrorCode;
use builder::BuilderError;

use super::{ApiError, OperationKind, of_engine};

/// Builds take minutes.
const BUILDS_RETRY_S: u64 = 10;
/// Uploads take seconds.
const UPLOADS_RETRY_S: u64 = 5;
const STOPPING_RETRY_S: u64 = 5;

/// The template does not exist, or was deleted.
pub fn no_template(id: &str) -> ApiError {
    let message = format!("template {} does not exist", rules::quoted(id));
    ApiError::new(ErrorCode::TemplateNotFound, message).with_detail("templateId", id)
}

/// The API error for an error of the builder.
pub fn of_builder(error: BuilderError) -> ApiError {
    match error {
        BuilderError::NotFound { id } => no_template(&id),
        BuilderError::Dockerfile(error) => {
            ApiError::new(ErrorCode::InvalidConfig, format!("dockerfile, {error}"))
                .with_detail("field", "dockerfile")
                .with_detail("line", error.line as u64)
        }
        error @ BuilderError::Context(_) => {
            ApiError::new(ErrorCode::InvalidConfig, error.to_string()).with_detail("field", "context")
        }
        error @ (BuilderError::TooManyBuilds { .. } | BuilderError::QueuedContexts { .. }) => {
            ApiError::new(ErrorCode::RateLimited, error.to_string()).retry_after(BUILDS_RETRY_S)
        }
        error @ (BuilderError::TooManyUploads { .. } | BuilderError::UploadedBytes { .. }) => {
            ApiError::new(ErrorCode::RateLimited, error.to_string()).retry_after(UPLOADS_RETRY_S)
        }
        error @ BuilderError::UploadsBusy { .. } => {
            ApiError::new(ErrorCode::ResourceExhausted, error.to_string()).retry_after(UPLOADS_RETRY_S)
        }
        BuilderError::Engine(error) => of_engine(error, None, OperationKind::Other),
        error @ BuilderError::Stopping => {
            ApiError::new(ErrorCode::ResourceExhausted, error.to_string()).retry_after(STOPPING_RETRY_S)
        }
        error @ BuilderError::Io(_) => ApiError::internal(error),
    }
}
