//! `DELETE /v1/sandboxes/{id}/executions/{execution}`. Responds when all its processes have ended.

use admission::endpoint::{INTERACT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;

use super::ExecutionRequest;
use super::view::execution_view;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}/executions/{execution}", INTERACT)
        .describe(
            "cancelExecution",
            Tag::Executions,
            "Cancel an execution",
            "Kills the command and all its processes. If the execution has ended, nothing changes. The \
             output remains readable.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::EXECUTION_ID, Parameter::AUTO_RESUME])
        .returns::<api::ExecutionView>(StatusCode::OK, "The ended execution.")
        .errors([
            (ErrorCode::InvalidRequest, "A parameter has an invalid value"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(cancel)
}

async fn cancel(call: Call) -> Result<Json<api::ExecutionView>, ApiError> {
    let request = ExecutionRequest::find(&call).await?;
    let sandbox = &request.sandbox;
    let query = sandbox.touched(reader::execution_query(call.parts.uri.query()))?;
    let ended = sandbox.handle().cancel(&request.execution, query.auto_resume).await;
    Json::ok(&execution_view(&sandbox.id, ended.map_err(|error| sandbox.fault(error))?))
}
