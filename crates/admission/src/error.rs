//! The errors of all doors: status, code and message of each fault, and the only constructor of the native error body.
//!
//! Handlers return [`ApiError`]. As a response it has its status and no body: the outermost layer of the native API adds the body, because
//! it knows the request's id; other doors write it in the form that their clients parse. The cause of an unexpected fault goes into the
//! log with that id and never to the client.

mod limits;
mod refusal;

use std::error::Error;
use std::sync::Arc;

use api::{ErrorBody, ErrorCode, ErrorObject};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base::chain_text;
use serde_json::{Map, Value};
use store::StoreError;

use limits::no_disk_space;
use refusal::is_refusal;

pub use limits::{exhausted, of_quota, rate_limited};
pub use refusal::{Condition, RefusalCode, RefusedBy};

/// A JSON document that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidJson(pub &'static str, #[source] pub serde_json::Error);

/// Marks an error response of another protocol, whose body the layers leave as it is.
#[derive(Debug, Clone, Copy)]
pub struct OwnBody(pub ErrorCode);

type Cause = Arc<dyn Error + Send + Sync>;

/// An error response.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: String,
    pub details: Map<String, Value>,
    /// For the header `Retry-After`.
    pub retry_after_s: Option<u64>,
    /// For the log only: details that the message must not reveal.
    cause: Option<Cause>,
    /// If HTTP has a more specific status than that of the code.
    status: Option<StatusCode>,
    /// Whether the status does not say that the same request can succeed soon.
    is_temporary: bool,
}

impl ApiError {
    /// An error. [`ApiError::refused`] makes those with the status 429 or 503: here they would lack what their client needs to know,
    /// and become internal errors.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let error = Self::of_code(code, message.into());
        if is_refusal(error.status()) {
            return Self::internal(format!("a refusal that does not say what refuses: {}", error.message));
        }
        error
    }

    fn of_code(code: ErrorCode, message: String) -> Self {
        Self {
            code,
            message,
            details: Map::new(),
            retry_after_s: None,
            cause: None,
            status: None,
            is_temporary: false,
        }
    }

    /// An internal error.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::unexpected().with_cause(cause)
    }

    /// An internal error whose cause is added later.
    pub fn unexpected() -> Self {
        let message = "internal error of the service; the operator can find the cause in the log by the id of this request";
        Self::new(ErrorCode::InternalError, message)
    }

    /// The same error with another message.
    #[must_use]
    pub fn with_message(mut self, message: String) -> Self {
        self.message = message;
        self
    }

    /// Adds an entry of `details`, which programs read.
    #[must_use]
    pub fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    /// For [`ApiError::refused`], and for errors of the E2B-compatible API on their way through the idempotency records.
    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    /// Adds what the log shows and the client does not.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(Arc::from(cause.into()));
        self
    }

    /// The same request can succeed soon, whatever the status says. No idempotency record has such an error.
    #[must_use]
    pub fn temporary(mut self) -> Self {
        self.is_temporary = true;
        self
    }

    pub fn is_temporary(&self) -> bool {
        self.is_temporary
    }

    /// The cause and its sources, for a log line.
    pub fn cause_text(&self) -> Option<String> {
        self.cause.as_deref().map(|cause| chain_text(cause))
    }

    /// The error object in bodies, streams and websocket messages. `request_id` is empty if the error is stored, because a replay
    /// has the id of another request.
    pub fn object(&self, request_id: &str) -> ErrorObject {
        ErrorObject {
            code: self.code,
            message: self.message.clone(),
            details: self.details.clone(),
            request_id: request_id.to_owned(),
        }
    }

    /// The body of an error response.
    pub fn body(&self, request_id: &str) -> Vec<u8> {
        let body = ErrorBody { error: self.object(request_id) };
        // Serializing a map of text and numbers cannot fail.
        serde_json::to_vec(&body).unwrap_or_default()
    }

    /// Replaces the status of the code by a more specific one.
    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

    /// The HTTP status.
    pub fn status(&self) -> StatusCode {
        let own = || StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        self.status.unwrap_or_else(own)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        if error.is_disk_full() {
            return no_disk_space(error);
        }
        Self::internal(error)
    }
}

impl From<reader::RequestRefusal> for ApiError {
    fn from(refusal: reader::RequestRefusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            reader::RequestRefusal::Malformed { .. } => Self::new(ErrorCode::InvalidRequest, message),
            reader::RequestRefusal::Field(fault) => {
                Self::of_field(ErrorCode::InvalidRequest, message, fault.field)
            }
            reader::RequestRefusal::Unknown(unknown) => {
                Self::of_field(ErrorCode::InvalidRequest, message, unknown.field)
                    .with_detail("nearest", unknown.meant.name())
            }
            reader::RequestRefusal::Config(fault) => {
                Self::of_field(ErrorCode::InvalidConfig, message, fault.field)
            }
            reader::RequestRefusal::CommandTooLong { .. } => {
                Self::of_field(ErrorCode::CommandTooLong, message, "command".to_owned())
            }
        }
    }
}

impl ApiError {
    fn of_field(code: ErrorCode, message: String, field: String) -> Self {
        Self::new(code, message).with_detail("field", field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_has_its_status_and_carries_itself() {
        let response = ApiError::new(ErrorCode::InvalidRequest, "x")
            .with_status(StatusCode::PAYLOAD_TOO_LARGE)
            .into_response();
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(response.extensions().get::<ApiError>().unwrap().message, "x");
    }
}
