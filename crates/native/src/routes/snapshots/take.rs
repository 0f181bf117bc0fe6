//! `POST /v1/sandboxes/{id}/snapshots`: takes a snapshot, once per idempotency key.

use std::sync::Arc;

use admission::endpoint::{Content, Json, JsonBody, Parameter, Received, Tag, WRITE, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, SandboxId, SnapshotBody, SnapshotView};
use axum::http::StatusCode;
use serde_json::json;
use service::Service;
use service::error::{OperationKind, of_engine};
use service::idempotency::{RecordHeader, ReplayableResponse};
use store::SnapshotRecord;

use super::view;
use crate::endpoint::{Call, Endpoint};
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
             sandboxes from it continue them. The id of the snapshot can be the `image` of a create.",
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
    let Call { service, caller, path, parts, body, .. } = call;
    let request = SandboxRequest::find(&service, &caller, &parts, path, OperationKind::Other).await?;
    let key = request.key()?;
    let body = request.body(body).await?;
    let (id, endpoint) = (request.id, request.endpoint);
    let (shared, account, received) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |header| async move { carry_out(&shared, &account, &id, &received, header).await };
    service.idempotency.run(&caller, &endpoint, key, body.bytes, work).await.map(Json::written)
}

async fn carry_out(
    service: &Service,
    account: &str,
    id: &SandboxId,
    body: &Received<SnapshotBody>,
    header: Option<RecordHeader>,
) -> Result<ReplayableResponse, ApiError> {
    let request = body.read(&service.config_rules)?;
    let to_response = if header.is_some() { ReplayableResponse::committed } else { ReplayableResponse::new };
    let engine = service.engine.clone();
    let pending = header.map(|header| {
        header.into_pending(move |record: &SnapshotRecord| {
            // Serializing a view cannot fail: it is text and numbers.
            let content = serialize(&view::snapshot(&engine, record)).unwrap_or_default();
            (StatusCode::CREATED.as_u16(), content.to_vec())
        })
    });
    let taken = service.engine.sandbox(account, id).take_snapshot(request, pending).await;
    let record = taken.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
    Ok(to_response(StatusCode::CREATED, serialize(&view::snapshot(&service.engine, &record))?))
}
