//! `POST /v1/sandboxes/{id}/pause`. Responds when the record is on disk; completes if the client disconnects.

use api::{ErrorCode, PauseResult, SandboxState};
use axum::http::StatusCode;

use super::read;
use crate::endpoint::{Call, Endpoint, Json, Parameter, Tag, WRITE};
use crate::error::{ApiError, OperationKind, of_engine};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/pause", WRITE)
        .describe(
            "pauseSandbox",
            Tag::Sandboxes,
            "Pause a running sandbox",
            "Freezes all processes of the sandbox; file system and memory are preserved. A body \
         is ignored.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .returns::<PauseResult>(StatusCode::OK, "The sandbox is paused.")
        .errors([
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidState, "The sandbox is not `running`"),
        ])
        .handler(pause)
}

async fn pause(call: Call) -> Result<Json<PauseResult>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = read::sandbox_id(&parts.uri)?;
    let paused = service.engine.sandbox(&caller.account, &id).pause().await;
    let paused = paused.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
    Json::ok(&PauseResult {
        id: paused.id,
        state: SandboxState::Paused,
        paused_at: paused.paused_at.into(),
        runtime_duration_ms: paused.runtime_duration_ms,
    })
}
