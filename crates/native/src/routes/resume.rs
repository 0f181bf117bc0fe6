//! `POST /v1/sandboxes/{id}/resume`. Responds when the processes run again and the record is on disk.

use admission::endpoint::{Content, Json, JsonBody, Parameter, Tag, WRITE};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, ResumeBody, ResumeResult, SandboxState};
use axum::http::StatusCode;
use engine::Processes;
use rules::IsolationRules;
use serde_json::json;
use service::error::OperationKind;
use service::images::pull_missing;

use super::read;
use super::requested_sandbox::RequestedSandbox;
use super::sandbox_request::SandboxRequest;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/resume", WRITE)
        .describe(
            "resumeSandbox",
            Tag::Sandboxes,
            "Resume a paused sandbox",
            "Continues all processes of the sandbox. `timeoutMs` and `idleTimeoutMs` keep their values; a \
             sandbox whose timeout ended gets `timeoutMs` again. With `cold`, its processes end, and it starts \
             again on its disk. With `adopt`, a hibernated sandbox that another host has stored in the object \
             store continues on this one.",
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
            (ErrorCode::InvalidRequest, "`cold` or `adopt` has a wrong type"),
            (ErrorCode::InvalidState, "The sandbox is not `paused`, or a third host has adopted it"),
            (ErrorCode::InvalidConfig, "This host lacks the image of a sandbox that it is to adopt, or requires a stronger isolation for it"),
            (ErrorCode::IsolationMismatch, "Another release of its isolation has stored its processes"),
        ])
        .handler(resume)
}

async fn resume(call: Call<Caller, JsonBody<ResumeBody>>) -> Result<Json<ResumeResult>, ApiError> {
    let (call, body) = call.split_body();
    let request = match SandboxRequest::find(&call, OperationKind::Other).await {
        Err(error) if error.code == ErrorCode::SandboxNotFound => return adopt(&call, body, error).await,
        found => found?,
    };
    let body = request.content(body, &()).await?;
    let processes = if body.cold == Some(true) { Processes::Ended } else { Processes::Kept };
    let resumed = request.sandbox.handle().resume_with(processes).await;
    Json::ok(&view(resumed.map_err(|error| request.sandbox.fault(error))?))
}

/// Adopts the sandbox from another host, if the body asks for that. Otherwise it is unknown.
async fn adopt(
    call: &Call,
    body: JsonBody<ResumeBody>,
    unknown: ApiError,
) -> Result<Json<ResumeResult>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let sandbox = RequestedSandbox::of(call, OperationKind::Other)?;
    if !service.engine.has_object_store() || read::json_content(&parts.headers).is_err() {
        return Err(unknown);
    }
    let body = read::json_body(service, caller, &parts.headers, body).await?.read(&())?;
    if body.adopt != Some(true) {
        return Err(unknown);
    }
    let isolation = IsolationRules::new(&service.isolation, &caller.account);
    let mut adopted = service.engine.adopt(&caller.account, &sandbox.id, &isolation).await;
    if let Err(error) = &adopted
        && pull_missing(service, &caller.account, error).await?
    {
        adopted = service.engine.adopt(&caller.account, &sandbox.id, &isolation).await;
    }
    Json::ok(&view(adopted.map_err(|error| sandbox.fault(error))?))
}

fn view(resumed: engine::ResumeResult) -> ResumeResult {
    ResumeResult {
        id: resumed.id,
        state: SandboxState::Running,
        resumed_at: resumed.resumed_at.into(),
        paused_duration_ms: resumed.paused_duration_ms,
    }
}
