//! What is told of an image that cannot be had.

use api::ErrorCode;
use image::{FailureKind, ImageError};

use super::ApiError;

/// A source that could not be reached may be back in a while.
const RETRY_AFTER_S: u64 = 30;

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        let config =
            |message: String| ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "image");
        match &error {
            ImageError::UnknownName { name, known } => config(format!(
                "image is {}; allowed is one of {}",
                rules::shown(name),
                known.iter().map(|name| rules::shown(name)).collect::<Vec<_>>().join(", ")
            )),
            ImageError::NoSource { name } => config(format!(
                "image is {}, which has no source on this server; allowed is another image, until its operator sets one",
                rules::shown(name)
            )),
            ImageError::BadName { .. } | ImageError::BadSource { .. } => config(error.to_string()),
            ImageError::AllFailed { failures, .. } => {
                // Another try helps where at least one source may answer otherwise by then.
                let may_pass = failures.iter().any(|failure| match failure.kind {
                    FailureKind::Unreachable | FailureKind::Tool | FailureKind::Io => true,
                    FailureKind::NotFound
                    | FailureKind::Denied
                    | FailureKind::Refused
                    | FailureKind::TooBig => false,
                });
                if may_pass {
                    ApiError::new(ErrorCode::ResourceExhausted, error.to_string()).retry_after(RETRY_AFTER_S)
                } else {
                    config(error.to_string())
                }
            }
            ImageError::Store { .. } => ApiError::internal(&error),
        }
    }
}
