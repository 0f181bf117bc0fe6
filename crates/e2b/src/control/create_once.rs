//! Creates under the idempotency keys of the service.

use admission::error::ApiError;
use admission::keyring::Caller;
use api::ErrorCode;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use service::idempotency::{self, RecordHeader, ReplayableResponse};

use crate::E2bApi;
use crate::error::E2bError;

/// Runs the creation, or replays the response that its key has. Without a key there is nothing to record. `endpoint` is part of the
/// scope of the key.
pub async fn run<W>(
    api: &E2bApi,
    caller: &Caller,
    endpoint: &str,
    (headers, body): (&HeaderMap, Bytes),
    creation: impl FnOnce(Option<RecordHeader>) -> W + Send + 'static,
) -> Result<Response, E2bError>
where
    W: Future<Output = Result<Vec<u8>, E2bError>> + Send + 'static,
{
    let key = idempotency::key_of(headers)?;
    let work = async move |header| {
        let content = creation(header).await.map_err(native)?;
        Ok(ReplayableResponse::committed(StatusCode::CREATED, content.into()))
    };
    let response = api.service.idempotency.run(caller, endpoint, key, body, work).await?;
    // A repeated error is the native one.
    match response.extensions().get::<ApiError>() {
        Some(error) => Err(error.clone().into()),
        None => Ok(response),
    }
}

/// The error as the service records it. Only its status and its text are shown again, and the log shows the cause.
fn native(error: E2bError) -> ApiError {
    let code =
        if error.status.is_server_error() { ErrorCode::InternalError } else { ErrorCode::InvalidRequest };
    let shown = ApiError::new(code, error.message).with_status(error.status);
    let shown = if error.is_temporary { shown.temporary() } else { shown };
    let shown = match error.native.and_then(|native| native.cause.clone()) {
        Some(cause) => shown.with_cause(cause),
        None => shown,
    };
    match error.retry_after_s {
        Some(seconds) => shown.retry_after(seconds),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use admission::record::ErrorSummary;

    use super::*;

    #[test]
    fn the_log_has_the_cause_of_a_create_that_failed() {
        let summary =
            ErrorSummary { code: ErrorCode::ResourceExhausted, cause: Some("the disk is full".to_owned()) };
        let failed = E2bError {
            native: Some(Arc::new(summary)),
            ..E2bError::new(StatusCode::SERVICE_UNAVAILABLE, "later").retry_after(7)
        };
        let shown = E2bError::from(native(failed));
        assert_eq!((shown.status.as_u16(), shown.retry_after_s), (503, Some(7)));
        assert_eq!(shown.message, "later", "the cause is not for clients");
        let logged = shown.native.and_then(|native| native.cause.clone());
        assert_eq!(logged.as_deref(), Some("the disk is full"));
    }
}
