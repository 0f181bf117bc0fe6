//! `DELETE /v1/sandboxes/{id}`. Responds when all processes of the sandbox have ended and its record is on disk.

use admission::endpoint::{Json, Parameter, TERMINATE, Tag};
use admission::error::ApiError;
use api::{ErrorCode, SandboxState, TerminateResult};
use axum::http::StatusCode;
use service::error::OperationKind;

use super::requested_sandbox::RequestedSandbox;
use crate::endpoint::{Call, Endpoint};

/// The `details.reason` of later requests for the sandbox.
const REASON: &str = "deleted";

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}", TERMINATE)
        .describe(
            "terminateSandbox",
            Tag::Sandboxes,
            "Terminate a sandbox",
            "Kills its processes and deletes its files permanently. A body is ignored.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .returns::<TerminateResult>(StatusCode::OK, "The sandbox is terminated.")
        .errors([(ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated already")])
        .handler(terminate)
}

async fn terminate(call: Call) -> Result<Json<TerminateResult>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Other)?;
    let terminated = sandbox.handle().terminate(REASON).await.map_err(|error| sandbox.fault(error))?;
    Json::ok(&TerminateResult {
        id: terminated.id,
        state: SandboxState::Terminated,
        terminated_at: terminated.terminated_at.into(),
        total_runtime_ms: terminated.total_runtime_ms,
    })
}
