//! Errors of images that are not available.

use api::ErrorCode;
use image::{Failure, FailureKind, ImageError};

use super::{ApiError, Condition, RefusalCode};

/// An unreachable source may recover.
const RETRY_AFTER_S: u64 = 30;

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        let config =
            |message: String| ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "image");
        let api_error = match &error {
            ImageError::UnknownName { name, known } => {
                let known: Vec<String> = known.iter().map(|name| rules::quoted(name)).collect();
                let name = rules::quoted(name);
                return config(format!("image is {name}; allowed: {}", rules::alternatives(&known)));
            }
            ImageError::NoSource { name } => {
                return config(format!(
                    "image is {}, which has no source on this service; use another image, or ask the operator to configure a source",
                    rules::quoted(name)
                ));
            }
            ImageError::BadName { .. } | ImageError::BadSource { .. } => return config(error.to_string()),
            ImageError::AllFailed { name, failures } => {
                let message =
                    format!("image {} is not available: {}", rules::quoted(name), why_not(failures));
                // A retry can succeed if at least one of the failures is temporary.
                let may_pass = failures.iter().any(|failure| match failure.kind {
                    FailureKind::Unreachable | FailureKind::Tool | FailureKind::Io => true,
                    FailureKind::NotFound
                    | FailureKind::Denied
                    | FailureKind::Closed
                    | FailureKind::Refused
                    | FailureKind::TooBig => false,
                });
                // Paths and addresses of sources are only in the log.
                if may_pass {
                    let (code, condition) = (RefusalCode::ResourceExhausted, Condition::ImageSource);
                    ApiError::refused(code, message, condition, RETRY_AFTER_S)
                } else {
                    config(format!("{message}; use another image"))
                }
            }
            ImageError::Store { .. } => ApiError::unexpected(),
        };
        api_error.with_cause(error)
    }
}

/// The reasons without the sources, each kind once.
fn why_not(failures: &[Failure]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for failure in failures {
        let reason = match failure.kind {
            FailureKind::Unreachable => "its source cannot be reached",
            FailureKind::NotFound => "its source does not have it",
            FailureKind::Denied => "its source denies access to it",
            FailureKind::Closed => {
                "its registry, or a server that this names, has no public address, and images.private_registries of the service does \
                 not list it"
            }
            FailureKind::Refused => "its source has no valid image",
            FailureKind::TooBig => "it is larger than this service accepts",
            FailureKind::Tool | FailureKind::Io => "this service failed to store it",
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() { "it has no source".to_owned() } else { reasons.join(", or ") }
}
