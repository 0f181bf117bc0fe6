//! `POST /v1/sandboxes/{id}/rollback`: replaces the disk of a sandbox by that of one of its snapshots. Completes if the client
//! disconnects.

use admission::endpoint::{Content, Json, JsonBody, Parameter, Tag, WRITE};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, RollbackBody, SandboxView};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;
use service::snapshot_names;

use crate::endpoint::{Call, Endpoint};
use crate::routes::sandbox_request::SandboxRequest;
use crate::routes::view;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/rollback", WRITE)
        .describe(
            "rollbackSandbox",
            Tag::Snapshots,
            "Roll a sandbox back to a snapshot",
            "Ends all processes of a running or paused sandbox, replaces its disk by that of one of its \
             snapshots, and starts it again; a paused one runs afterwards, too. If the snapshot has processes, they continue. Its id, configuration, network policy and exposed ports stay.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .json_body::<RollbackBody>(
            64 << 10,
            Content::json::<RollbackBody>().example(json!({"snapshotId": "snap_7m3t5w0ry4h1v8x2k9qz"})),
            "A repeated or `null` field is an error.",
        )
        .returns::<SandboxView>(StatusCode::OK, "The sandbox runs on the disk of the snapshot.")
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "The snapshot was taken of another sandbox"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::SnapshotNotFound, "The snapshot does not exist"),
            (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
            (ErrorCode::IsolationMismatch, "This host cannot continue the processes of the snapshot"),
        ])
        .handler(rollback)
}

async fn rollback(call: Call<Caller, JsonBody<RollbackBody>>) -> Result<Json<SandboxView>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let body = request.content(body, &()).await?;
    let sandbox = &request.sandbox;
    let snapshot =
        snapshot_names::find(&sandbox.service, &sandbox.account, Some(&sandbox.id), &body.snapshot_id)?;
    let status = sandbox.handle().rollback(&snapshot).await.map_err(|error| sandbox.fault(error))?;
    Json::ok(&view::sandbox(&status.record))
}
