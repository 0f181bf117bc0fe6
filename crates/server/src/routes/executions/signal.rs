//! `POST /v1/sandboxes/{id}/executions/{execution}/signal`.

use std::sync::Arc;

use api::SignalBody;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::{Asked, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::{read, view};
use crate::service::Service;

const BODY_MAX: usize = 4 << 10;

/// Send a signal
///
/// To the command and what runs in its process group; on a terminal to what runs in the foreground as well.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/executions/{execution}/signal", operation_id = "signalExecution", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("execution" = api::ExecutionId, Path, description = "Id of the execution."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    request_body(content = SignalBody, description = "Unknown fields are ignored; one that is given twice, or is `null`, is an error."),
    responses(
        (status = 200, description = "It was sent. The execution.", body = api::ExecutionView),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. No signal that can be sent: `INVALID_CONFIG`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. It has no such execution: `EXECUTION_NOT_FOUND`."),
        (status = 409, description = "The execution has ended: `EXECUTION_ENDED`. The sandbox is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 413, description = "The body is larger than 4 KiB: `INVALID_REQUEST`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn send(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let asked = Asked::new(service, &caller, &parts.uri).await?;
    let reading = async {
        let query = reader::execution_query(parts.uri.query())?;
        let memory = asked.service.request_memory.body(&caller.account, BODY_MAX);
        let body = read::json_body(&parts.headers, body, memory).await?;
        Ok::<_, ApiError>((query, reader::signal(&body)?))
    };
    let (query, signal) = asked.touched(reading.await)?;
    let engine = &asked.service.engine;
    let sent =
        engine.sandbox(&asked.account, &asked.id).signal(&asked.execution, signal, query.auto_resume).await;
    sent.map_err(|error| asked.fault(error))?;
    view::ok(&shown::view(&asked.id, asked.status().await?))
}
