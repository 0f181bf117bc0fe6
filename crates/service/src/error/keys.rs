//! Errors of API keys.

use admission::error::ApiError;
use api::ErrorCode;

/// The key of a stream or a terminal ended meanwhile.
pub fn key_ended() -> ApiError {
    ApiError::new(ErrorCode::Unauthorized, "the API key was revoked or has expired")
}
