//! `GET /v1/sandboxes/{id}/executions`: a page of a sandbox's executions.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::{ErrorCode, ExecutionList, Pagination};
use axum::http::StatusCode;
use service::error::OperationKind;

use super::view::execution_view;
use crate::endpoint::{Call, Endpoint};
use crate::routes::requested_sandbox::RequestedSandbox;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/executions", INSPECT)
        .describe(
            "listExecutions",
            Tag::Executions,
            "List executions",
            "Lists the detached commands and terminals of a sandbox, newest first: all that run, \
         and the most recent ones that ended.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::LIMIT, Parameter::OFFSET])
        .returns::<ExecutionList>(StatusCode::OK, "A page.")
        .errors([
            (ErrorCode::InvalidRequest, "A parameter has an invalid value"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
        ])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<ExecutionList>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Execute)?;
    let all = sandbox.handle().executions().await.map_err(|error| sandbox.fault(error))?;
    let (offset, limit) = reader::page(call.parts.uri.query())?;
    let total = all.len() as u64;
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let page = all.into_iter().skip(skipped).take(limit as usize);
    let data = page.map(|status| execution_view(&sandbox.id, status)).collect();
    Json::ok(&ExecutionList { data, pagination: Pagination::new(total, limit, offset) })
}
