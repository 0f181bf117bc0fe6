//! `GET /v1/sandboxes/{id}`: one sandbox, as its actor last published it. Reads memory only.

use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, SandboxView};
use axum::http::StatusCode;
use service::error::OperationKind;

use super::requested_sandbox::RequestedSandbox;
use super::view;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}", READ)
        .describe("getSandbox", Tag::Sandboxes, "Get a sandbox", "")
        .parameters([Parameter::SANDBOX_ID])
        .returns::<SandboxView>(StatusCode::OK, "The sandbox.")
        .errors([(ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated")])
        .handler(get)
}

async fn get(call: Call) -> Result<Json<SandboxView>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Other)?;
    let status = sandbox.handle().status().await.map_err(|error| sandbox.fault(error))?;
    Json::ok(&view::sandbox(&status.record))
}
