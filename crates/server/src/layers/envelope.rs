//! What every answer has: the request's id, the rate headers, a content type, and in an error's case the body of section 7.
//!
//! Handlers and the layers give errors as [`ApiError`], without a body. An error of axum's own has none of these and gets
//! one by its status.

use api::ErrorCode;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;

use crate::error::ApiError;
use crate::limiter::Shown;
use crate::request_id::{self, RequestId};

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const JSON: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
/// Where nobody said how long.
const RETRY_AFTER_S: u64 = 1;

/// What an error told the client, and what it did not tell.
#[derive(Debug)]
pub struct Told {
    pub code: ErrorCode,
    pub cause: Option<String>,
}

/// Makes an answer complete.
pub fn complete(response: &mut Response, id: &RequestId, shown: Shown) -> Option<Told> {
    let status = response.status();
    let told = (status.is_client_error() || status.is_server_error()).then(|| tell(response, id));
    let headers = response.headers_mut();
    headers.insert(request_id::HEADER, id.header_value());
    headers.insert(LIMIT, HeaderValue::from(shown.limit));
    headers.insert(REMAINING, HeaderValue::from(shown.remaining));
    headers.insert(RESET, HeaderValue::from(shown.reset_s));
    match headers.get(header::CONTENT_TYPE) {
        Some(kind) if kind != "application/json" => {}
        // Nothing follows that has a type.
        None if status == StatusCode::SWITCHING_PROTOCOLS => {}
        _ => {
            headers.insert(header::CONTENT_TYPE, JSON);
        }
    }
    told
}

/// What HEAD gets: everything but the body. The router does this for what it answered, not for what became of it here, and
/// HTTP/2 takes a body in its place for a fault of the connection.
pub fn behead(response: &mut Response) {
    let body = std::mem::take(response.body_mut());
    if let Some(length) = body.size_hint().exact().filter(|length| *length > 0) {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| HeaderValue::from(length));
    }
}

fn tell(response: &mut Response, id: &RequestId) -> Told {
    let error = match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error,
        None => {
            let error = by_status(response.status());
            *response.status_mut() = error.status();
            error
        }
    };
    let status = response.status();
    let headers = response.headers_mut();
    // Both are of the body that goes.
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, JSON);
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    let always = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    if let Some(seconds) = error.retry_after_s.or(always.then_some(RETRY_AFTER_S)) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    *response.body_mut() = Body::from(error.body(&id.0));
    Told { code: error.code, cause: error.cause_text() }
}

/// An error that nobody of ours made.
fn by_status(status: StatusCode) -> ApiError {
    let (code, message) = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::UNPROCESSABLE_ENTITY => {
            // The specification has no row for these: a wrong body is a 400 (decision 16).
            return ApiError::new(ErrorCode::InvalidRequest, "the request's body cannot be read");
        }
        StatusCode::NOT_FOUND => (ErrorCode::NotFound, "there is nothing at this path"),
        StatusCode::METHOD_NOT_ALLOWED => (
            ErrorCode::MethodNotAllowed,
            "the path does not take this method; the header Allow names those it takes",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => (ErrorCode::InvalidRequest, "the request's body is too long"),
        StatusCode::REQUEST_TIMEOUT => (ErrorCode::InvalidRequest, "the request did not arrive in time"),
        StatusCode::UNAUTHORIZED => (ErrorCode::Unauthorized, "an API key is needed"),
        StatusCode::FORBIDDEN => (ErrorCode::Forbidden, "the key does not allow this"),
        StatusCode::CONFLICT => (ErrorCode::InvalidState, "this does not suit the present state"),
        StatusCode::TOO_MANY_REQUESTS => (ErrorCode::RateLimited, "too many requests; try again later"),
        StatusCode::SERVICE_UNAVAILABLE => {
            (ErrorCode::ResourceExhausted, "there is no room; try again later")
        }
        status if status.is_server_error() => {
            return ApiError::internal(format!("an answer with status {status} and no error"))
                .with_status(status);
        }
        _ => (ErrorCode::InvalidRequest, "the request is malformed"),
    };
    ApiError::new(code, message).with_status(status)
}
