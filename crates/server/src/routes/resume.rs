//! `POST /v1/sandboxes/{id}/resume`. Responds when the processes run again and the record is on disk.

use api::{ErrorCode, ResumeBody, ResumeResult, SandboxState};
use axum::http::StatusCode;
use engine::Processes;
use serde_json::json;

use super::sandbox_request::SandboxRequest;
use crate::endpoint::{Call, Content, Endpoint, Json, JsonBody, Parameter, Tag, WRITE};
use crate::error::{ApiError, OperationKind, of_engine};
use crate::keyring::Caller;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/resume", WRITE)
        .describe(
            "resumeSandbox",
            Tag::Sandboxes,
            "Resume a paused sandbox",
            "Continues all processes of the sandbox. `timeoutMs` and `idleTimeoutMs` keep their values; a \
             sandbox whose timeout ended gets `timeoutMs` again. With `cold`, its processes end, and it starts \
             again on its disk.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .json_body::<ResumeBody>(
            64 << 10,
            Content::json::<ResumeBody>().example(json!({"cold": true})),
            "Optional. A body that is not declared as JSON is ignored.",
        )
        .returns::<ResumeResult>(StatusCode::OK, "The sandbox is running.")
        .errors([
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidRequest, "`cold` has a wrong type"),
            (ErrorCode::InvalidState, "The sandbox is not `paused`"),
            (ErrorCode::IsolationMismatch, "Another release of its isolation has stored its processes"),
        ])
        .handler(resume)
}

async fn resume(call: Call<Caller, JsonBody<ResumeBody>>) -> Result<Json<ResumeResult>, ApiError> {
    let Call { service, caller, path, parts, body, .. } = call;
    let request = SandboxRequest::find(&service, &caller, &parts, path, OperationKind::Other).await?;
    let sandbox = service.engine.sandbox(&caller.account, &request.id);
    let body = request.body(body).await?.read(&()).inspect_err(|_| sandbox.touch())?;
    let processes = if body.cold == Some(true) { Processes::Ended } else { Processes::Kept };
    let resumed = sandbox.resume_with(processes).await;
    let resumed =
        resumed.map_err(|error| of_engine(error, Some(request.id.as_str()), OperationKind::Other))?;
    Json::ok(&ResumeResult {
        id: resumed.id,
        state: SandboxState::Running,
        resumed_at: resumed.resumed_at.into(),
        paused_duration_ms: resumed.paused_duration_ms,
    })
}
