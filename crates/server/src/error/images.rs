//! What is told of an image that cannot be had.

use api::ErrorCode;
use image::{Failure, FailureKind, ImageError};

use super::ApiError;

/// A source that could not be reached may be back in a while.
const RETRY_AFTER_S: u64 = 30;

impl From<ImageError> for ApiError {
    fn from(error: ImageError) -> Self {
        let config =
            |message: String| ApiError::new(ErrorCode::InvalidConfig, message).with_detail("field", "image");
        let told = match &error {
            ImageError::UnknownName { name, known } => {
                let known: Vec<String> = known.iter().map(|name| rules::shown(name)).collect();
                let name = rules::shown(name);
                return config(format!("image is {name}; allowed is one of {}", known.join(", ")));
            }
            ImageError::NoSource { name } => {
                return config(format!(
                    "image is {}, which has no source on this server; allowed is another image, until its operator sets one",
                    rules::shown(name)
                ));
            }
            ImageError::BadName { .. } | ImageError::BadSource { .. } => return config(error.to_string()),
            ImageError::AllFailed { name, failures } => {
                let message = format!("image is {}, {}", rules::shown(name), why_not(failures));
                // Another try helps where at least one source may answer otherwise by then.
                let may_pass = failures.iter().any(|failure| match failure.kind {
                    FailureKind::Unreachable | FailureKind::Tool | FailureKind::Io => true,
                    FailureKind::NotFound
                    | FailureKind::Denied
                    | FailureKind::Refused
                    | FailureKind::TooBig => false,
                });
                // Paths and addresses are the operator's, and are found in the log.
                if may_pass {
                    ApiError::new(ErrorCode::ResourceExhausted, message).retry_after(RETRY_AFTER_S)
                } else {
                    config(format!("{message}; allowed is an image that can be had"))
                }
            }
            ImageError::Store { .. } => ApiError::unexpected(),
        };
        told.with_cause(error)
    }
}

/// In words that tell nothing of where images come from. What is wrong with several sources is told of each kind once.
fn why_not(failures: &[Failure]) -> String {
    let mut reasons: Vec<&str> = Vec::new();
    for failure in failures {
        let reason = match failure.kind {
            FailureKind::Unreachable => "its source cannot be reached",
            FailureKind::NotFound => "its source does not have it",
            FailureKind::Denied => "its source does not give it to this server",
            FailureKind::Refused => "what its source has is no image that can be taken",
            FailureKind::TooBig => "it is larger than this server takes",
            FailureKind::Tool | FailureKind::Io => "this server failed to make it",
        };
        if !reasons.contains(&reason) {
            reasons.push(reason);
        }
    }
    if reasons.is_empty() { "it has no source".to_owned() } else { reasons.join(", or ") }
}
