//! `GET /v1/sandboxes/{id}`: one sandbox, as its actor last published it. Reads memory only.

use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, SandboxView};
use axum::http::StatusCode;
use service::error::{OperationKind, of_engine};

use super::{read, view};
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
    let Call { service, caller, parts, .. } = call;
    let id = read::sandbox_id(&parts.uri)?;
    let status = service.engine.sandbox(&caller.account, &id).status().await;
    let status = status.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
    Json::ok(&view::sandbox(&status.record))
}
