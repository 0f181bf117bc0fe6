//! `DELETE /v1/snapshots/{id}`.

use admission::endpoint::{Json, Parameter, Tag, WRITE};
use admission::error::ApiError;
use api::{ErrorCode, SnapshotDeleted};
use axum::http::StatusCode;
use service::error::{OperationKind, of_engine};
use service::snapshot_names;

use crate::endpoint::{Call, Endpoint};
use crate::routes::read::segment;

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/snapshots/{id}", WRITE)
        .describe(
            "deleteSnapshot",
            Tag::Snapshots,
            "Delete a snapshot",
            "Sandboxes that were created from the snapshot, and snapshots of those, are not affected. The \
             disk space becomes free when none of them is left. A name must be that of one snapshot only.",
        )
        .parameters([Parameter::SNAPSHOT_ID])
        .returns::<SnapshotDeleted>(StatusCode::OK, "The snapshot is deleted.")
        .errors([
            (ErrorCode::SnapshotNotFound, "The snapshot does not exist or was deleted"),
            (ErrorCode::InvalidState, "Another host with the same object store has taken the snapshot, or several snapshots have the name"),
        ])
        .handler(delete)
}

async fn delete(call: Call) -> Result<Json<SnapshotDeleted>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = snapshot_names::find_only(&service, &caller.account, &segment(&parts.uri, 3))?;
    let deleted = service.engine.delete_snapshot(&caller.account, &id).await;
    let deleted_at = deleted.map_err(|error| of_engine(error, None, OperationKind::Other))?.into();
    Json::ok(&SnapshotDeleted { id, deleted_at })
}
