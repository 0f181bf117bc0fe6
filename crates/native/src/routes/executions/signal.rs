//! `POST /v1/sandboxes/{id}/executions/{execution}/signal`.

use admission::endpoint::{Content, INTERACT, Json, JsonBody, Parameter, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, SignalBody};
use axum::http::StatusCode;

use super::ExecutionRequest;
use super::view::execution_view;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/executions/{execution}/signal", INTERACT)
        .describe(
            "signalExecution",
            Tag::Executions,
            "Send a signal",
            "Signals the process group of the command, and on a terminal also the foreground \
         process group.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::EXECUTION_ID, Parameter::AUTO_RESUME])
        .json_body::<SignalBody>(
            4 << 10,
            Content::json::<SignalBody>(),
            "A repeated or `null` field is an error.",
        )
        .returns::<api::ExecutionView>(StatusCode::OK, "The signal was sent. Returns the execution.")
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "The signal is unknown or cannot be sent"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
            (ErrorCode::ExecutionEnded, "The execution has ended"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(send)
}

async fn send(call: Call<Caller, JsonBody<SignalBody>>) -> Result<Json<api::ExecutionView>, ApiError> {
    let (call, body) = call.split_body();
    let request = ExecutionRequest::find(&call).await?;
    let (sandbox, parts) = (&request.sandbox, &call.parts);
    let reading = async {
        let query = reader::execution_query(parts.uri.query())?;
        let body = read::json_body(&call.service, &call.caller, &parts.headers, body).await?;
        Ok::<_, ApiError>((query, body.read(&())?))
    };
    let (query, signal) = sandbox.touched(reading.await)?;
    let sent = sandbox.handle().signal(&request.execution, signal, query.auto_resume).await;
    sent.map_err(|error| sandbox.fault(error))?;
    Json::ok(&execution_view(&sandbox.id, request.status().await?))
}
