//! `DELETE /v1/sandboxes/{id}/executions/{execution}`. Answers when no process of it runs any more.

use api::ErrorCode;

use axum::http::StatusCode;

use super::{Asked, shown};
use crate::endpoint::{Call, Endpoint, INTERACT, Json, Parameter, Tag};
use crate::error::ApiError;

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}/executions/{execution}", INTERACT)
        .describe(
            "cancelExecution",
            Tag::Executions,
            "Cancel an execution",
            "Kills the command and all processes that it started. An execution that has ended \
         stays as it is. The output stays readable.",
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
    let asked = Asked::new(service, &caller, &parts.uri).await?;
    let query = asked.touched(reader::execution_query(parts.uri.query()).map_err(ApiError::from))?;
    let engine = &asked.service.engine;
    let ended = engine.sandbox(&asked.account, &asked.id).cancel(&asked.execution, query.auto_resume).await;
    Json::ok(&shown::view(&asked.id, ended.map_err(|error| asked.fault(error))?))
}
