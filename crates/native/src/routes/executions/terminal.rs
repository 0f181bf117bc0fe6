//! `POST /v1/sandboxes/{id}/terminals`: opens a terminal, once per idempotency key.

use std::sync::Arc;

use admission::endpoint::{Content, INTERACT, Json, JsonBody, Parameter, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, TerminalBody};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;

use super::detach;
use crate::endpoint::{Call, Endpoint};
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
    let Call { service, caller, path, parts, body, .. } = call;
    let request = SandboxRequest::find(&service, &caller, &parts, path, OperationKind::Execute).await?;
    let (key, run_id) = (request.key()?, request.run_id()?);
    let body = request.body(body).await?;
    let (id, endpoint) = (request.id, request.endpoint);
    let (shared, account, received) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |_| async move {
        let command = received
            .read(&shared.execute_rules)
            .inspect_err(|_| shared.engine.sandbox(&account, &id).touch())?;
        detach::start(&shared, &account, &id, command, run_id).await
    };
    let response = service.idempotency.run(&caller, &endpoint, key, body.bytes, work).await?;
    detach::with_location(response).await.map(Json::written)
}
