//! `PUT /v1/sandboxes/{id}/timeout`: changes when a sandbox's timeout ends.
//!
//! The change is stored before the response. It completes if the client disconnects.

use admission::endpoint::{CHANGE, Content, Json, JsonBody, Parameter, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, SandboxView, TimeoutBody};
use axum::http::StatusCode;
use engine::TimeoutChange;
use serde_json::json;
use service::error::OperationKind;

use super::sandbox_request::SandboxRequest;
use super::view;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::put("/v1/sandboxes/{id}/timeout", CHANGE)
        .describe(
            "setTimeout",
            Tag::Sandboxes,
            "Change the timeout of a sandbox",
            "The timeout counts from now, whatever was left of it; of a paused sandbox it counts from the \
             resume. With 0 it ends now: a running sandbox is terminated or paused, as its `onTimeout` \
             says, and `timeoutMs` keeps its value. A resume of a sandbox whose timeout ended gives it \
             `timeoutMs` again.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .json_body::<TimeoutBody>(
            1 << 10,
            Content::json::<TimeoutBody>().example(json!({"timeoutMs": 3_600_000})),
            "A repeated or `null` field is an error.",
        )
        .returns::<SandboxView>(StatusCode::OK, "The sandbox with its new timeout.")
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
        ])
        .handler(set)
}

async fn set(call: Call<Caller, JsonBody<TimeoutBody>>) -> Result<Json<SandboxView>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let timeout_ms = request.content(body, &call.service.config_rules).await?;
    let changed = request.sandbox.handle().change_timeout(TimeoutChange::Set(timeout_ms)).await;
    let status = changed.map_err(|error| request.sandbox.fault(error))?;
    Json::ok(&view::sandbox(&status.record))
}
