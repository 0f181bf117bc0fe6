//! Error responses: `{"code": STATUS, "message": TEXT}`. Their clients choose the exception by `code`, and fail on any other body.

use api::ErrorCode;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct E2bError {
    pub status: StatusCode,
    pub message: String,
    pub retry_after_s: Option<u64>,
    /// Whether the same request can succeed soon, whatever the status says. No idempotency record has such an error.
    pub is_temporary: bool,
    /// The code of the error of the native API that this one is made of. The response has it as an extension, for the log.
    pub native_code: Option<ErrorCode>,
}

impl E2bError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let waits = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let retry_after_s = waits.then_some(1);
        Self { status, message: message.into(), retry_after_s, is_temporary: false, native_code: None }
    }

    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// `id` as the client knows it.
    pub fn no_sandbox(id: &str) -> Self {
        Self::not_found(format!("sandbox {} not found", rules::quoted(id)))
    }

    pub fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error of the service")
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }
}

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.status.as_u16(), "message": self.message });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        if let Some(code) = self.native_code {
            response.extensions_mut().insert(code);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
