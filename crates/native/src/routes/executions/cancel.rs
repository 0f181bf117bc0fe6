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
    let Call { service, caller, parts, .. } = call;
    let request = ExecutionRequest::new(service, &caller, &parts.uri).await?;
    let query = request.touched(reader::execution_query(parts.uri.query()).map_err(ApiError::from))?;
    let engine = &request.service.engine;
    let ended =
        engine.sandbox(&request.account, &request.id).cancel(&request.execution, query.auto_resume).await;
    Json::ok(&execution_view(&request.id, ended.map_err(|error| request.fault(error))?))
}
