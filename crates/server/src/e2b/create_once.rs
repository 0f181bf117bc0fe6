//! Creates of the E2B-compatible API under the idempotency keys of the service.

use admission::error::ApiError;
use admission::keyring::Caller;
use api::ErrorCode;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use e2b::{Creation, E2bError, NewRecord};

use service::Service;
use service::idempotency::{self, RecordHeader, ReplayableResponse};

/// Runs the creation, or replays the response that its key has.
pub async fn run(
    service: &Service,
    caller: &Caller,
    endpoint: &str,
    (headers, body): (&HeaderMap, Bytes),
    creation: Creation,
) -> Result<Response, ApiError> {
    let key = idempotency::key_of(headers)?;
    let work = async move |header: Option<RecordHeader>| {
        let new_record =
            header.map(|header| -> NewRecord { Box::new(move |respond| header.into_pending(respond)) });
        let content = creation(new_record).await.map_err(native)?;
        Ok(ReplayableResponse::committed(StatusCode::CREATED, content.into()))
    };
    service.idempotency.run(caller, endpoint, key, body, work).await
}

/// The error as the service records it. Only its status and its text are shown again.
fn native(error: E2bError) -> ApiError {
    let code =
        if error.status.is_server_error() { ErrorCode::InternalError } else { ErrorCode::InvalidRequest };
    let shown = ApiError::new(code, error.message).with_status(error.status);
    let shown = if error.is_temporary { shown.temporary() } else { shown };
    match error.retry_after_s {
        Some(seconds) => shown.retry_after(seconds),
        None => shown,
    }
}
