//! `POST /v1/sandboxes/{id}/pause`. Responds when the record is on disk; completes if the client disconnects.

use admission::endpoint::{Content, Json, JsonBody, Parameter, Tag, WRITE};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, PauseBody, PauseResult, SandboxState};
use axum::http::StatusCode;
use engine::Processes;
use serde_json::json;
use service::error::OperationKind;

use super::sandbox_request::SandboxRequest;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/pause", WRITE)
        .describe(
            "pauseSandbox",
            Tag::Sandboxes,
            "Pause a running sandbox",
            "Freezes all processes of the sandbox; file system and memory are preserved. With `hibernate`, \
             the processes are stored on the disk at once, also those of a paused sandbox.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .json_body::<PauseBody>(
            64 << 10,
            Content::json::<PauseBody>().example(json!({"hibernate": true})),
            "Optional. A body that is not declared as JSON is ignored.",
        )
        .returns::<PauseResult>(StatusCode::OK, "The sandbox is paused.")
        .errors([
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidRequest, "`hibernate` has a wrong type"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`; with `hibernate`: neither `running` nor `paused`",
            ),
            (ErrorCode::IsolationMismatch, "With `hibernate`: the processes of the sandbox cannot be stored"),
        ])
        .handler(pause)
}

async fn pause(call: Call<Caller, JsonBody<PauseBody>>) -> Result<Json<PauseResult>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let body = request.content(body, &()).await?;
    let processes = if body.hibernate == Some(true) { Processes::Stored } else { Processes::Kept };
    let paused = request.sandbox.handle().pause_with(processes).await;
    let paused = paused.map_err(|error| request.sandbox.fault(error))?;
    Json::ok(&PauseResult {
        id: paused.id,
        state: SandboxState::Paused,
        paused_at: paused.paused_at.into(),
        runtime_duration_ms: paused.runtime_duration_ms,
    })
}
