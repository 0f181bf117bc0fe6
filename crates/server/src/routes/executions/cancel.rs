//! `DELETE /v1/sandboxes/{id}/executions/{execution}`. Answers when no process of it runs any more.

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

/// Cancel an execution
///
/// Kills the command and all that it started. One that has ended stays as it is. Its output is kept.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/executions/{execution}", operation_id = "cancelExecution", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("execution" = api::ExecutionId, Path, description = "Id of the execution."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    responses(
        (status = 200, description = "The execution, which has ended.", body = api::ExecutionView),
        (status = 400, description = "A parameter has a value that is not allowed: `INVALID_REQUEST`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. It has no such execution: `EXECUTION_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn cancel(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?;
    let query = asked.touched(reader::execution_query(uri.query()).map_err(ApiError::from))?;
    let engine = &asked.service.engine;
    let ended = engine.sandbox(&asked.account, &asked.id).cancel(&asked.execution, query.auto_resume).await;
    view::ok(&shown::view(&asked.id, ended.map_err(|error| asked.fault(error))?))
}
