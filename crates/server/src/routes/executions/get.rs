//! `GET /v1/sandboxes/{id}/executions/{execution}`.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{Asked, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::view;
use crate::service::Service;

/// Get an execution
///
/// Of a detached command or a terminal, running or ended.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/executions/{execution}", operation_id = "getExecution", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("execution" = api::ExecutionId, Path, description = "Id of the execution.")
    ),
    responses(
        (status = 200, description = "The execution.", body = api::ExecutionView),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. It has no such execution: `EXECUTION_NOT_FOUND`.")
    )
)]
pub async fn get(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?;
    view::ok(&shown::view(&asked.id, asked.status().await?))
}
