//! `POST /v1/sandboxes/{id}/resume`. Responds when the processes run again and the record is on disk.

use api::{ErrorCode, ResumeResult, SandboxState};
use axum::http::StatusCode;

use super::read;
use crate::endpoint::{Call, Endpoint, Json, Parameter, Tag, WRITE};
use crate::error::{ApiError, OperationKind, of_engine};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/resume", WRITE)
        .describe(
            "resumeSandbox",
            Tag::Sandboxes,
            "Resume a paused sandbox",
            "Continues all processes of the sandbox. `timeoutMs` and `idleTimeoutMs` keep their values; a \
             sandbox whose timeout ended gets `timeoutMs` again. A \
             body is ignored.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .returns::<ResumeResult>(StatusCode::OK, "The sandbox is running.")
        .errors([
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidState, "The sandbox is not `paused`"),
        ])
        .handler(resume)
}

async fn resume(call: Call) -> Result<Json<ResumeResult>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = read::sandbox_id(&parts.uri)?;
    let resumed = service.engine.sandbox(&caller.account, &id).resume().await;
    let resumed = resumed.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
    Json::ok(&ResumeResult {
        id: resumed.id,
        state: SandboxState::Running,
        resumed_at: resumed.resumed_at.into(),
        paused_duration_ms: resumed.paused_duration_ms,
    })
}
