//! `POST /v1/sandboxes/{id}/executions/{execution}/stdin`: a body, as it comes, into what a command reads.

use std::sync::Arc;

use api::StdinWritten;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::Response;
use http_body_util::BodyExt;

use super::Asked;
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::read::{broken_body, values};
use crate::routes::view;
use crate::service::Service;

/// Write to standard input
///
/// The body is what the command reads, any bytes, as fast as it takes them; the answer comes when it took all. On a terminal it
/// is what is typed, and `close` types Ctrl-D. Writes of several requests do not mix within a piece of 64 KiB.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/executions/{execution}/stdin", operation_id = "writeStdin", tag = "Executions",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("execution" = api::ExecutionId, Path, description = "Id of the execution."),
        ("close" = Option<bool>, Query, nullable = false, description = "Whether standard input ends after this; `false` where it is left out."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    request_body(content = String, content_type = "application/octet-stream", description = "What is written. May be empty."),
    responses(
        (status = 200, description = "The command took it.", body = StdinWritten),
        (status = 400, description = "The request cannot be read, or its body broke off or came too slowly: `INVALID_REQUEST`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. It has no such execution: `EXECUTION_NOT_FOUND`."),
        (status = 409, description = "The execution has ended: `EXECUTION_ENDED`. Its standard input is not open: `STDIN_CLOSED`. The sandbox is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn write(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, mut body) = request.into_parts();
    let asked = Asked::new(service, &caller, &parts.uri).await?;
    let query = asked.touched(reader::execution_query(parts.uri.query()).map_err(ApiError::from))?;
    let encodings = values(&parts.headers, header::CONTENT_ENCODING);
    let ranges = values(&parts.headers, header::CONTENT_RANGE);
    asked.touched(reader::raw_content(encodings, ranges).map_err(ApiError::from))?;
    let engine = &asked.service.engine;
    let input =
        engine.sandbox(&asked.account, &asked.id).write_stdin(&asked.execution, query.auto_resume).await;
    let input = input.map_err(|error| asked.fault(error))?;
    let mut bytes_written = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| {
            let mut error = broken_body(&fault);
            error.message.push_str("; what came of it was written");
            error
        })?;
        let Ok(data) = frame.into_data() else { continue };
        input.write(&data).await.map_err(|error| asked.fault(error))?;
        bytes_written += data.len() as u64;
    }
    if query.close {
        input.close().await.map_err(|error| asked.fault(error))?;
    }
    view::ok(&StdinWritten { bytes_written, closed: query.close })
}
