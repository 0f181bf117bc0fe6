//! `GET /v1/snapshots`: a page of an account's snapshots.

use admission::endpoint::parameter::{inline, text};
use admission::endpoint::{Json, Parameter, READ, Tag};
use admission::error::ApiError;
use api::{ErrorCode, Pagination, SandboxId, SnapshotList};
use axum::http::StatusCode;

use super::view;
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/snapshots", READ)
        .describe(
            "listSnapshots",
            Tag::Snapshots,
            "List snapshots",
            "Lists snapshots, newest first. Unknown parameters are ignored; a repeated one is an error.",
        )
        .parameters([
            Parameter::query("sandboxId", "Only snapshots of this sandbox.", inline::<SandboxId>),
            Parameter::query("name", "Only snapshots with this name.", text).example("after-setup"),
            Parameter::LIMIT,
            Parameter::OFFSET,
            Parameter::query(
                "metadata.userId",
                "Only snapshots with this value for the metadata key `userId`. `metadata.<key>` works \
                 for any key; up to 20 keys can be combined.",
                text,
            ),
        ])
        .returns::<SnapshotList>(StatusCode::OK, "A page.")
        .errors([(ErrorCode::InvalidRequest, "A parameter has an invalid value")])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<SnapshotList>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let query = reader::snapshots(parts.uri.query())?;
    let (records, total) = service.engine.list_snapshots(&caller.account, &query);
    let data = records.iter().map(|record| view::snapshot(&service.engine, record)).collect();
    Json::ok(&SnapshotList { data, pagination: Pagination::new(total, query.limit, query.offset) })
}
