//! Errors of templates.

use admission::error::{ApiError, RefusalCode};
use api::ErrorCode;
use builder::BuilderError;
use rules::ReachedLimit;

use super::{OperationKind, of_engine};

/// Builds take minutes.
const BUILDS_RETRY_S: u64 = 10;
/// Uploads take seconds.
const UPLOADS_RETRY_S: u64 = 5;
/// Contexts are bounded by a multiple of the largest one.
const CONTEXT_KEY: &str = "templates.max_context_mb";

/// The template does not exist, or was deleted.
pub fn no_template(id: &str) -> ApiError {
    let message = format!("template {} does not exist", rules::quoted(id));
    ApiError::new(ErrorCode::TemplateNotFound, message).with_detail("templateId", id)
}

/// The API error for an error of the builder.
pub fn of_builder(error: BuilderError) -> ApiError {
    match error {
        BuilderError::NotFound { id } => no_template(&id),
        error @ BuilderError::InProgress { .. } => ApiError::new(ErrorCode::InvalidState, error.to_string()),
        BuilderError::Dockerfile(error) => {
            ApiError::new(ErrorCode::InvalidConfig, format!("dockerfile, {error}"))
                .with_detail("field", "dockerfile")
                .with_detail("line", error.line as u64)
        }
        error @ BuilderError::Context(_) => {
            ApiError::new(ErrorCode::InvalidConfig, error.to_string()).with_detail("field", "context")
        }
        BuilderError::TooManyBuilds { allowed, .. } => {
            let limit = ReachedLimit::fixed(allowed as u64, "queued and running builds of an account");
            ApiError::refused(RefusalCode::RateLimited, error, limit, BUILDS_RETRY_S)
        }
        BuilderError::QueuedContexts { allowed_bytes, .. } => {
            let limit = of_contexts(allowed_bytes, "MB of build contexts of the builds of an account");
            ApiError::refused(RefusalCode::RateLimited, error, limit, BUILDS_RETRY_S)
        }
        BuilderError::TooManyUploads { allowed, .. } => {
            let limit = ReachedLimit::fixed(allowed as u64, "uploads at a time of an account");
            ApiError::refused(RefusalCode::RateLimited, error, limit, UPLOADS_RETRY_S)
        }
        BuilderError::UploadedBytes { allowed_bytes } => {
            let limit = of_contexts(allowed_bytes, "MB of uploads in progress of an account");
            ApiError::refused(RefusalCode::RateLimited, error, limit, UPLOADS_RETRY_S)
        }
        BuilderError::UploadsBusy { allowed } => {
            let limit = ReachedLimit::fixed(allowed as u64, "uploads at a time on this host");
            ApiError::refused(RefusalCode::ResourceExhausted, error, limit, UPLOADS_RETRY_S)
        }
        BuilderError::Engine(error) => of_engine(error, None, OperationKind::Other),
        BuilderError::Stopping => ApiError::stopping(error),
        BuilderError::Io(_) => ApiError::internal(error),
    }
}

fn of_contexts(allowed_bytes: u64, counts: &'static str) -> ReachedLimit {
    ReachedLimit::set_by_operator(allowed_bytes >> 20, counts, CONTEXT_KEY)
}
