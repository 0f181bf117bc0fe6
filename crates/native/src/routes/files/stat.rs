//! `GET /v1/sandboxes/{id}/files/stat`: the metadata of a path.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/files/stat", INSPECT)
        .describe(
            "statFile",
            Tag::Files,
            "Get file metadata",
            "For a symbolic link, returns the link itself with `linkTarget` unless `follow` is \
         `true`.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/notes.txt"),
            Parameter::flag("follow", "Whether to follow a symbolic link; default `false`."),
            Parameter::AUTO_RESUME,
        ])
        .returns::<api::FileEntry>(StatusCode::OK, "The metadata.")
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
        ])
        .handler(stat)
}

async fn stat(call: Call) -> Result<Json<api::FileEntry>, ApiError> {
    let request = FileRequest::find(&call).await?;
    let work = request
        .begin(|query| Ok(FileOp::Stat { path: query.path("path")?, follow: query.flag("follow")? }))
        .await?;
    let path = work.paths[0].clone();
    let info = work.info().await.map_err(|error| request.fault(error))?;
    Json::ok(&view::entry(&path, &info))
}
