//! `GET /v1/health`: whether the service answers, and its version. Needs no key and counts against nothing.

use std::time::{SystemTime, UNIX_EPOCH};

use api::{Health, Timestamp};
use axum::response::Response;

use super::view;
use crate::error::ApiError;

/// Is the service there?
///
/// Needs no key.
#[utoipa::path(
    get, path = "/v1/health", operation_id = "health", tag = "Service",
    responses((status = 200, description = "The service is there.", body = Health))
)]
pub async fn health() -> Result<Response, ApiError> {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
    view::ok(&Health::ok(Timestamp(now)))
}
