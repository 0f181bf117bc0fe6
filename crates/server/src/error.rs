//! The only table from what went wrong to what the client is told.
//!
//! Handlers and layers answer with [`ApiError`]. As a response it has its status and no body yet: the outermost layer writes the
//! body of section 7, because it alone knows the request's id. What an unexpected fault was goes into the log with that id
//! ([`ApiError::cause`]) and never to the client.

mod entry;
mod executions;
mod files;
mod images;
mod operations;
mod ports;

use api::ErrorCode;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use store::StoreError;

pub use entry::of_entry;
pub use executions::{no_execution, not_a_terminal};
pub use operations::{During, not_found, of_engine, of_quota};
pub use ports::{crowded, nobody, port_not_found, silent};

/// What the client is told.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: String,
    pub details: Map<String, Value>,
    /// For the header `Retry-After`.
    pub retry_after_s: Option<u64>,
    /// For the log alone: what really happened, where the message must not say.
    pub cause: Option<String>,
    /// Where HTTP has a better status than the code's own.
    status: Option<StatusCode>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, details: Map::new(), retry_after_s: None, cause: None, status: None }
    }

    /// A fault of ours.
    pub fn internal(cause: impl std::fmt::Display) -> Self {
        let message = "an unexpected fault of the server; its log says more under the id of this request";
        Self::new(ErrorCode::InternalError, message).with_cause(cause)
    }

    #[must_use]
    pub fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.to_owned(), value.into());
        self
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    #[must_use]
    pub fn with_cause(mut self, cause: impl std::fmt::Display) -> Self {
        self.cause = Some(cause.to_string());
        self
    }

    #[must_use]
    pub fn with_status(mut self, status: StatusCode) -> Self {
        self.status = Some(status);
        self
    }

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
        Self::internal(format!("the store failed: {error}"))
    }
}

impl From<reader::Refusal> for ApiError {
    fn from(refusal: reader::Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            reader::Refusal::Malformed { .. } => Self::new(ErrorCode::InvalidRequest, message),
            reader::Refusal::Field(fault) => Self::of_field(ErrorCode::InvalidRequest, message, fault.field),
            reader::Refusal::Config(fault) => Self::of_field(ErrorCode::InvalidConfig, message, fault.field),
            reader::Refusal::CommandTooLong { .. } => {
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
mod tests;
