//! `POST /v1/sandboxes/{id}/terminals`: opens a terminal, once per idempotency key.

use admission::endpoint::{Content, INTERACT, Json, JsonBody, Parameter, Received, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, RunId, TerminalBody};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::ReplayableResponse;

use super::detach;
use crate::endpoint::{Call, Endpoint};
use crate::routes::requested_sandbox::RequestedSandbox;
use crate::routes::sandbox_request::SandboxRequest;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/terminals", INTERACT)
        .describe(
            "openTerminal",
            Tag::Executions,
            "Open a terminal",
            "Starts a shell or a command on a new terminal and responds immediately. The terminal \
             continues without attached clients; `GET …/executions/{execution}/attach` attaches to it. \
             While a client is attached, the sandbox is not paused for idleness.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::IDEMPOTENCY_KEY,
            Parameter::RUN_ID.describe("The run to which the terminal's events belong."),
        ])
        .json_body::<TerminalBody>(
            1 << 20,
            Content::json::<TerminalBody>().example(json!({"cols": 120, "cwd": "/workspace", "rows": 40})),
            "All fields are optional. A repeated or `null` field is \
             an error.",
        )
        .returns::<api::ExecutionView>(StatusCode::CREATED, "The terminal is open.")
        .header("Location", "Path of the execution.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is out of its range"),
            (ErrorCode::CommandTooLong, "The command is longer than 65,536 bytes"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(open)
}

async fn open(call: Call<Caller, JsonBody<TerminalBody>>) -> Result<Json<api::ExecutionView>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Execute).await?;
    let (key, run_id) = (request.key()?, request.run_id()?);
    let body = request.body(body).await?;
    let work = move |sandbox, body, _| carry_out(sandbox, body, run_id);
    detach::with_location(request.once(key, body, work).await?).await.map(Json::written)
}

async fn carry_out(
    sandbox: RequestedSandbox,
    body: Received<TerminalBody>,
    run_id: Option<RunId>,
) -> Result<ReplayableResponse, ApiError> {
    let command = sandbox.touched(body.read(&sandbox.service.execute_rules))?;
    detach::start(&sandbox, command, run_id).await
}
