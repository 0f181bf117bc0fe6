//! Error responses: `{"code": STATUS, "message": TEXT}`. Their clients choose the exception by `code`, and fail on any other body.

use std::sync::Arc;

use admission::error::ApiError;
use admission::record::ErrorSummary;
use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use builder::BuilderError;
use engine::EngineError;
use serde_json::json;
use service::error::{OperationKind, of_builder, of_engine};

/// An error response.
#[derive(Debug, Clone)]
pub struct E2bError {
    pub status: StatusCode,
    pub message: String,
    pub retry_after_s: Option<u64>,
    /// Whether the same request can succeed soon, whatever the status says. No idempotency record has such an error.
    pub is_temporary: bool,
    /// Code and cause of the error that this one is made of. The response has them as an extension, for the log.
    pub native: Option<Arc<ErrorSummary>>,
}

impl E2bError {
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let waits = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        let retry_after_s = waits.then_some(1);
        Self { status, message: message.into(), retry_after_s, is_temporary: false, native: None }
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

    /// The response for an error of the engine.
    pub fn of_engine(error: EngineError) -> Self {
        of_engine(error, None, OperationKind::Other).into()
    }

    /// The response for an error of the builder.
    pub fn of_builder(error: BuilderError) -> Self {
        of_builder(error).into()
    }

    #[must_use]
    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }
}

/// An error of the native API in the form of this one.
impl From<ApiError> for E2bError {
    fn from(error: ApiError) -> Self {
        let native = ErrorSummary::of(&error);
        let shown = Self {
            is_temporary: error.is_temporary(),
            native: Some(Arc::new(native)),
            ..Self::new(error.status(), error.message.clone())
        };
        match error.retry_after_s {
            Some(seconds) => shown.retry_after(seconds),
            None => shown,
        }
    }
}

impl IntoResponse for E2bError {
    fn into_response(self) -> Response {
        let body = json!({ "code": self.status.as_u16(), "message": self.message });
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        if let Some(native) = self.native {
            response.extensions_mut().insert(native);
        }
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_refusals_for_now_say_when_to_try_again() {
        for (status, wait) in
            [(400, None), (404, None), (409, None), (500, None), (429, Some(1)), (503, Some(1))]
        {
            let error = E2bError::new(StatusCode::from_u16(status).unwrap(), "x");
            assert_eq!(error.retry_after_s, wait, "{status}");
        }
        assert_eq!(E2bError::new(StatusCode::TOO_MANY_REQUESTS, "x").retry_after(30).retry_after_s, Some(30));
    }

    #[tokio::test]
    async fn the_response_has_the_body_that_clients_parse_and_the_native_code_for_the_log() {
        let native =
            ErrorSummary { cause: Some("why".to_owned()), ..ErrorSummary::of_code(api::ErrorCode::ALL[0]) };
        let error = E2bError {
            native: Some(Arc::new(native)),
            ..E2bError::new(StatusCode::SERVICE_UNAVAILABLE, "later \"soon\"")
        };
        let response = error.into_response();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let logged = response.extensions().get::<Arc<ErrorSummary>>().unwrap();
        assert_eq!((logged.code, logged.cause.as_deref()), (api::ErrorCode::ALL[0], Some("why")));
        let body = axum::body::to_bytes(response.into_body(), 1 << 10).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body, json!({ "code": 503, "message": "later \"soon\"" }));
        let missing = E2bError::no_sandbox("sb\n1").into_response();
        assert_eq!((missing.status().as_u16(), missing.headers().get(RETRY_AFTER)), (404, None));
        assert!(missing.extensions().get::<Arc<ErrorSummary>>().is_none());
    }

    #[test]
    fn ids_of_clients_are_quoted_in_messages() {
        assert_eq!(E2bError::no_sandbox("sbx").message, "sandbox 'sbx' not found");
        assert!(!E2bError::no_sandbox("a\nb").message.contains('\n'));
    }
}
