//! The errors of the API: which status, code and message each fault becomes, and the only constructor of the error body.
//!
//! Handlers and layers return [`ApiError`]. As a response it has its status and no body: the outermost layer adds the body, because
//! it knows the request's id. The cause of an unexpected fault goes into the log with that id and never to the client.

mod entry;
mod executions;
mod files;
mod images;
mod operations;
mod ports;

use std::error::Error;
use std::sync::Arc;

use api::{ErrorBody, ErrorCode, ErrorObject};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value};
use store::StoreError;

pub use entry::of_entry;
pub use executions::{no_execution, not_a_terminal};
pub use operations::{During, not_found, of_engine, of_quota};
pub use ports::{crowded, nobody, port_not_found, silent};

type Cause = Arc<dyn Error + Send + Sync>;

/// What the client is told.
#[derive(Debug, Clone)]
pub struct ApiError {
    pub code: ErrorCode,
    pub message: String,
    pub details: Map<String, Value>,
    /// For the header `Retry-After`.
    pub retry_after_s: Option<u64>,
    /// For the log alone: what happened, where the message must not say.
    cause: Option<Cause>,
    /// Where HTTP has a better status than the code's own.
    status: Option<StatusCode>,
}

impl ApiError {
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, message, details: Map::new(), retry_after_s: None, cause: None, status: None }
    }

    /// A fault of ours.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::unexpected().with_cause(cause)
    }

    fn unexpected() -> Self {
        let message = "an unexpected fault of the server; its log says more under the id of this request";
        Self::new(ErrorCode::InternalError, message)
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
    pub fn with_cause(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(Arc::from(cause.into()));
        self
    }

    /// The cause and what it was caused by, for a line of the log.
    pub fn cause_text(&self) -> Option<String> {
        let mut error: &dyn Error = self.cause.as_deref()?;
        let mut text = error.to_string();
        while let Some(source) = error.source() {
            let said = source.to_string();
            // Many messages include that of their source.
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            error = source;
        }
        Some(text)
    }

    /// The error as clients read it: in bodies, in streams and on websockets. `request_id` is empty where the error is stored to be
    /// replayed under the id of another request.
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
        // Text and numbers under names that are text can always be written.
        serde_json::to_vec(&body).unwrap_or_default()
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
        Self::internal(error)
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
