//! Starts detached executions: commands with `detached`, and terminals.

use admission::endpoint::serialize;
use admission::error::ApiError;
use api::{ExecutionId, RunId, SandboxId};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use engine::{DetachedRequest, TerminalSize};
use http_body_util::BodyExt;
use rules::DetachedCommand;
use serde::Deserialize;
use service::idempotency::ReplayableResponse;

use super::view::execution_view;
use crate::routes::requested_sandbox::RequestedSandbox;

/// Starts an execution and returns its view.
pub async fn start(
    sandbox: &RequestedSandbox,
    command: DetachedCommand,
    run_id: Option<RunId>,
) -> Result<ReplayableResponse, ApiError> {
    let DetachedCommand { request, timeout_ms, reader_timeout_ms, open_stdin, terminal } = command;
    let request = DetachedRequest {
        command: request.command,
        cwd: request.cwd,
        env: request.env,
        timeout_ms,
        reader_timeout_ms: Some(reader_timeout_ms),
        stdin: request.stdin,
        open_stdin,
        terminal: terminal.map(|size| TerminalSize { columns: size.cols, rows: size.rows }),
        auto_resume: request.auto_resume,
        run_id,
        user: request.user,
        ..DetachedRequest::default()
    };
    let started = sandbox.handle().start_detached(request).await;
    let view = execution_view(&sandbox.id, started.map_err(|error| sandbox.fault(error))?);
    let response = ReplayableResponse::new(StatusCode::CREATED, serialize(&view)?);
    Ok(response.at(&location_of(&sandbox.id, &view.execution_id)))
}

fn location_of(sandbox: &SandboxId, execution: &ExecutionId) -> String {
    format!("/v1/sandboxes/{sandbox}/executions/{execution}")
}

/// Sets `Location` of a response that an earlier request has recorded: the record has only its body.
pub async fn with_location(response: Response) -> Result<Response, ApiError> {
    if response.status() != StatusCode::CREATED || response.headers().contains_key(header::LOCATION) {
        return Ok(response);
    }
    let (mut parts, body) = response.into_parts();
    let content = body.collect().await.map_err(ApiError::internal)?.to_bytes();
    let StartedExecution { sandbox_id, execution_id } =
        serde_json::from_slice(&content).map_err(ApiError::internal)?;
    let location = location_of(&sandbox_id, &execution_id);
    let location = HeaderValue::try_from(location).map_err(ApiError::internal)?;
    parts.headers.insert(header::LOCATION, location);
    Ok(Response::from_parts(parts, content.into()))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartedExecution {
    sandbox_id: SandboxId,
    execution_id: ExecutionId,
}
