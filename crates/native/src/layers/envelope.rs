//! The parts of every response: the request id, the rate limit headers, a content type and, for errors, the error body.
//!
//! Handlers and layers return errors as [`ApiError`], without a body. An error response without one gets an [`ApiError`] by its
//! status.

use admission::error::{ApiError, OwnBody};
use admission::limiter::RateHeaders;
use admission::record::ErrorSummary;
use admission::request_id::{self, RequestId};
use api::ErrorCode;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");

/// Completes a response.
pub fn complete(response: &mut Response, id: &RequestId, rate_headers: RateHeaders) -> Option<ErrorSummary> {
    let status = response.status();
    let summary = (status.is_client_error() || status.is_server_error()).then(|| write_error(response, id));
    let headers = response.headers_mut();
    headers.insert(request_id::HEADER, id.header_value());
    headers.insert(LIMIT, HeaderValue::from(rate_headers.limit));
    headers.insert(REMAINING, HeaderValue::from(rate_headers.remaining));
    headers.insert(RESET, HeaderValue::from(rate_headers.reset_s));
    match headers.get(header::CONTENT_TYPE) {
        Some(kind) if kind != "application/json" => {}
        // There is no body.
        None if status == StatusCode::SWITCHING_PROTOCOLS => {}
        _ => {
            headers.insert(header::CONTENT_TYPE, JSON);
        }
    }
    summary
}

/// The response to HEAD: everything except the body. Error bodies are added here, after the router has removed those of handlers,
/// and HTTP/2 treats a body of such a response as a connection error.
pub fn behead(response: &mut Response) {
    let body = std::mem::take(response.body_mut());
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}

fn write_error(response: &mut Response, id: &RequestId) -> ErrorSummary {
    if let Some(OwnBody(code)) = response.extensions().get::<OwnBody>() {
        return ErrorSummary::of_code(*code);
    }
    let error = response.extensions_mut().remove::<ApiError>();
    let error = error.unwrap_or_else(|| by_status(response.status())).checked();
    let status = error.status();
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // Both describe the body that is replaced.
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, JSON);
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(seconds) = error.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    *response.body_mut() = Body::from(error.body(&id.0));
    ErrorSummary::of(&error)
}

/// The error for a response without an [`ApiError`].
fn by_status(status: StatusCode) -> ApiError {
    let (code, message) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::UNPROCESSABLE_ENTITY => {
            // The API has no such statuses: a malformed body is a 400.
            return ApiError::new(ErrorCode::InvalidRequest, "the request body is malformed");
        }
        StatusCode::NOT_FOUND => (ErrorCode::NotFound, "the API has no such path"),
        StatusCode::METHOD_NOT_ALLOWED => (
            ErrorCode::MethodNotAllowed,
            "the path does not support this method; the header Allow lists the supported ones",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => (ErrorCode::InvalidRequest, "the request body is too large"),
        StatusCode::REQUEST_TIMEOUT => (ErrorCode::InvalidRequest, "the request did not arrive in time"),
        StatusCode::UNAUTHORIZED => (ErrorCode::Unauthorized, "an API key is required"),
        StatusCode::FORBIDDEN => (ErrorCode::Forbidden, "the key lacks the required scope"),
        StatusCode::CONFLICT => {
            (ErrorCode::InvalidState, "the operation is not allowed in the current state of the sandbox")
        }
        status if status.is_server_error() => {
            return ApiError::internal(format!("a response with status {status} and no error"))
                .with_status(status);
        }
        _ => (ErrorCode::InvalidRequest, "the request is malformed"),
    };
    ApiError::new(code, message).with_status(status)
}
