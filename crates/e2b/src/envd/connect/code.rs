//! The error codes of the protocol, with their names and HTTP statuses.

use std::sync::Arc;

use admission::error::ApiError;
use admission::record::ErrorSummary;
use axum::http::StatusCode;

/// An error code of the Connect protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    InvalidArgument,
    OutOfRange,
    FailedPrecondition,
    Unauthenticated,
    PermissionDenied,
    NotFound,
    AlreadyExists,
    ResourceExhausted,
    DataLoss,
    Internal,
    Unimplemented,
    Unavailable,
    DeadlineExceeded,
}

impl Code {
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "invalid_argument",
            Self::OutOfRange => "out_of_range",
            Self::FailedPrecondition => "failed_precondition",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::NotFound => "not_found",
            Self::AlreadyExists => "already_exists",
            Self::ResourceExhausted => "resource_exhausted",
            Self::DataLoss => "data_loss",
            Self::Internal => "internal",
            Self::Unimplemented => "unimplemented",
            Self::Unavailable => "unavailable",
            Self::DeadlineExceeded => "deadline_exceeded",
        }
    }

    /// The status of a unary response.
    pub fn status(self) -> StatusCode {
        match self {
            Self::InvalidArgument | Self::OutOfRange | Self::FailedPrecondition => StatusCode::BAD_REQUEST,
            Self::Unauthenticated => StatusCode::UNAUTHORIZED,
            Self::PermissionDenied => StatusCode::FORBIDDEN,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::AlreadyExists => StatusCode::CONFLICT,
            Self::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
            Self::DataLoss | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unimplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        }
    }
}

/// An error of a call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", .code.name())]
pub struct RpcError {
    pub code: Code,
    pub message: String,
    /// When the same call can succeed, if the service knows. A refusal without it asks to wait for a second.
    pub retry_after_s: Option<u64>,
    /// The error that this one is made of, for the log.
    pub native: Option<Arc<ErrorSummary>>,
}

impl RpcError {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), retry_after_s: None, native: None }
    }

    /// The call reached a limit of the service.
    pub fn refused(error: ApiError) -> Self {
        let native = Some(Arc::new(ErrorSummary::of(&error)));
        let retry_after_s = error.retry_after_s;
        Self { retry_after_s, native, ..Self::new(Code::ResourceExhausted, error.message) }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// The error object of unary bodies and of end-of-stream envelopes.
    pub fn to_json(&self) -> serde_json::Value {
        serde_json::json!({ "code": self.code.name(), "message": self.message })
    }
}

#[cfg(test)]
mod tests {
    use admission::error::{Condition, RefusalCode};

    use super::*;

    /// The table of the Connect protocol: https://connectrpc.com/docs/protocol
    #[test]
    fn each_code_has_the_name_and_the_status_of_the_protocol() {
        for (code, name, status) in [
            (Code::InvalidArgument, "invalid_argument", 400),
            (Code::OutOfRange, "out_of_range", 400),
            (Code::FailedPrecondition, "failed_precondition", 400),
            (Code::Unauthenticated, "unauthenticated", 401),
            (Code::PermissionDenied, "permission_denied", 403),
            (Code::NotFound, "not_found", 404),
            (Code::AlreadyExists, "already_exists", 409),
            (Code::ResourceExhausted, "resource_exhausted", 429),
            (Code::DataLoss, "data_loss", 500),
            (Code::Internal, "internal", 500),
            (Code::Unimplemented, "unimplemented", 501),
            (Code::Unavailable, "unavailable", 503),
            (Code::DeadlineExceeded, "deadline_exceeded", 504),
        ] {
            assert_eq!((code.name(), code.status().as_u16()), (name, status));
            let error = RpcError::new(code, "why");
            assert_eq!(error.to_json(), serde_json::json!({ "code": name, "message": "why" }));
            assert_eq!(error.to_string(), format!("{name}: why"));
        }
    }

    #[test]
    fn a_limit_of_the_service_is_exhausted_until_its_time() {
        let limit = ApiError::refused(RefusalCode::RateLimited, "10 a minute", Condition::HostResources, 41);
        let refused = RpcError::refused(limit);
        assert_eq!((refused.code, refused.retry_after_s), (Code::ResourceExhausted, Some(41)));
        assert!(refused.message.contains("10 a minute"), "{}", refused.message);
        assert_eq!(refused.native.unwrap().limit.as_deref(), Some("host_resources"));
        assert_eq!(RpcError::invalid("x").retry_after_s, None);
    }
}
