//! Creates under the idempotency keys of the service.

use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, SandboxId};
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
    W: Future<Output = Result<(SandboxId, Vec<u8>), E2bError>> + Send + 'static,
{
    let key = idempotency::key_of(headers)?;
    let work = async move |header| {
        let (id, content) = creation(header).await.map_err(native)?;
        Ok(ReplayableResponse::committed(StatusCode::CREATED, content.into()).of_sandboxes([id]))
    };
    let response = api.service.idempotency.run(caller, endpoint, key, body, work).await?;
    // A repeated error is the native one.
    match response.extensions().get::<ApiError>() {
        Some(error) => Err(error.clone().into()),
        None => Ok(response),
    }
}

/// The error as the service records it. Only its status and its text are shown again; the log has the cause and the limit.
fn native(error: E2bError) -> ApiError {
    let code =
        if error.status.is_server_error() { ErrorCode::InternalError } else { ErrorCode::InvalidRequest };
    let shown = ApiError::new(code, error.message).with_status(error.status);
    let shown = if error.is_temporary { shown.temporary() } else { shown };
    let native = error.native.as_deref();
    let shown = match native.and_then(|native| native.cause.clone()) {
        Some(cause) => shown.with_cause(cause),
        None => shown,
    };
    let shown = match native.and_then(|native| native.limit.clone()) {
        Some(limit) => shown.with_detail("limit", limit),
        None => shown,
    };
    let mut shown = match native.and_then(|native| native.limit_value) {
        Some(value) => shown.with_detail("value", value),
        None => shown,
    };
    shown.code = native.map_or(code, |native| native.code);
    match error.retry_after_s {
        Some(seconds) => shown.retry_after(seconds),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use admission::error::RefusalCode;
    use rules::ReachedLimit;

    use super::*;

    #[test]
    fn the_log_has_the_cause_of_a_failed_create_and_the_client_does_not() {
        let failed = E2bError::from(ApiError::internal("the disk is on fire"));
        let again = E2bError::from(native(failed.clone()));
        assert_eq!((again.status.as_u16(), &again.message), (500, &failed.message));
        assert_eq!(again.native.unwrap().cause.as_deref(), Some("the disk is on fire"));
        assert!(!again.message.contains("fire"));
        let limit = ReachedLimit::set_by_operator(3, "sandboxes", "quotas.sandboxes");
        let full = ApiError::refused(RefusalCode::QuotaExceeded, "full", limit, 9);
        let logged = E2bError::from(native(full.into())).native.unwrap();
        assert_eq!(
            (logged.code, logged.limit.as_deref()),
            (ErrorCode::QuotaExceeded, Some("quotas.sandboxes"))
        );
        assert_eq!(logged.limit_value, Some(3));
        let refused = native(E2bError::new(StatusCode::SERVICE_UNAVAILABLE, "full").retry_after(7));
        assert_eq!(
            (refused.status().as_u16(), refused.retry_after_s, refused.cause_text()),
            (503, Some(7), None)
        );
    }
}
