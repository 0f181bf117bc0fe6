//! `POST /v1/sandboxes/{id}/snapshots`: takes a snapshot, once per idempotency key.

use admission::endpoint::{Content, Json, JsonBody, Parameter, Received, Tag, WRITE, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, SnapshotBody, SnapshotView};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::{RecordHeader, ReplayableResponse};
use store::SnapshotRecord;

use super::view;
use crate::endpoint::{Call, Endpoint};
use crate::routes::requested_sandbox::RequestedSandbox;
use crate::routes::sandbox_request::SandboxRequest;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/snapshots", WRITE)
        .describe(
            "takeSnapshot",
            Tag::Snapshots,
            "Take a snapshot of a sandbox",
            "Copies the disk of a running or paused sandbox. The copy is the disk as it was at one moment \
             shortly before the response; the processes of a running sandbox are frozen for the last part of \
             the copy. With `memory`, the snapshot also has the processes and their memory at that moment, and \
             sandboxes from it continue them. The id of the snapshot can be the `image` of a create. The \
             snapshot has no configuration: a create without `network` has an open network, whatever the policy \
             of the first sandbox is.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::IDEMPOTENCY_KEY])
        .json_body::<SnapshotBody>(
            64 << 10,
            Content::json::<SnapshotBody>().example(json!({"name": "after-setup"})),
            "A repeated or `null` field is an error.",
        )
        .returns::<SnapshotView>(StatusCode::CREATED, "The snapshot is stored.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
            (ErrorCode::IsolationMismatch, "The processes of the sandbox cannot be stored"),
        ])
        .handler(take)
}

async fn take(call: Call<Caller, JsonBody<SnapshotBody>>) -> Result<Json<SnapshotView>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let key = request.key()?;
    let body = request.body(body).await?;
    request.once(key, body, carry_out).await.map(Json::written)
}

async fn carry_out(
    sandbox: RequestedSandbox,
    body: Received<SnapshotBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let request = body.read(&sandbox.service.config_rules)?;
    let to_response = if header.is_some() { ReplayableResponse::committed } else { ReplayableResponse::new };
    let engine = sandbox.service.engine.clone();
    let pending = header.map(|header| {
        header.into_pending(move |record: &SnapshotRecord| {
            // Serializing a view cannot fail: it is text and numbers.
            let content = serialize(&view::snapshot(&engine, record)).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let taken = sandbox.handle().take_snapshot(request, pending).await;
    let record = taken.map_err(|error| sandbox.fault(error))?;
    Ok(to_response(StatusCode::CREATED, serialize(&view::snapshot(&sandbox.service.engine, &record))?))
}
