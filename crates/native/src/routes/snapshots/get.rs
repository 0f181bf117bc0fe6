//! `GET /v1/snapshots/{id}`.

use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, SnapshotView};
use axum::http::StatusCode;
use service::error::{OperationKind, of_engine};

use service::snapshot_names;

use super::view;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read::segment;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/snapshots/{id}", READ)
        .describe(
            "getSnapshot",
            Tag::Snapshots,
            "Get a snapshot",
            "A name is that of the newest snapshot with it.",
        )
        .parameters([Parameter::SNAPSHOT_ID])
        .returns::<SnapshotView>(StatusCode::OK, "The snapshot.")
        .errors([(ErrorCode::SnapshotNotFound, "The snapshot does not exist or was deleted")])
        .handler(get)
}

async fn get(call: Call) -> Result<Json<SnapshotView>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let id = snapshot_names::find(&service, &caller.account, None, &segment(&parts.uri, 3))?;
    let record = service.engine.snapshot(&caller.account, &id).await;
    let record = record.map_err(|error| of_engine(error, None, OperationKind::Other))?;
    Json::ok(&view::snapshot(&service.engine, &record))
}
