//! `GET /v1/sandboxes/{id}/executions/{execution}`.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;

use super::ExecutionRequest;
use super::view::execution_view;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/executions/{execution}", INSPECT)
        .describe(
            "getExecution",
            Tag::Executions,
            "Get an execution",
            "A detached command or a terminal, running or ended.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::EXECUTION_ID])
        .returns::<api::ExecutionView>(StatusCode::OK, "The execution.")
        .errors([
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::ExecutionNotFound, "The execution does not exist"),
        ])
        .handler(get)
}

async fn get(call: Call) -> Result<Json<api::ExecutionView>, ApiError> {
    let request = ExecutionRequest::find(&call).await?;
    Json::ok(&execution_view(&request.sandbox.id, request.status().await?))
}
