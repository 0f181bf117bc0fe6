//! `POST /v1/sandboxes/{id}/files/move`: moves or renames a file, link or directory.

use admission::endpoint::{CHANGE, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/files/move", CHANGE)
        .describe(
            "moveFile",
            Tag::Files,
            "Move or rename",
            "Atomic within one file system, also for directories. Between two file systems of the sandbox \
             the entry is copied and then deleted.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::named_path("from", "/workspace/notes.txt"),
            Parameter::named_path("to", "/workspace/notes.old").describe(
                "The new path, not a directory to move into. Its last part is a name, not `.` or `..`.",
            ),
            Parameter::flag(
                "overwrite",
                "Whether to replace a file or an empty directory at `to`; default `false`.",
            ),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .returns::<api::FileEntry>(StatusCode::OK, "The moved file or directory.")
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "`from` or the parent of `to` does not exist"),
            (ErrorCode::FileExists, "`to` exists already"),
            (ErrorCode::NotAFile, "`to` is a directory and `from` is not"),
            (
                ErrorCode::NotADirectory,
                "A parent in the path is not a directory, or `from` is a directory and `to` is not",
            ),
            (ErrorCode::DirectoryNotEmpty, "The directory at `to` is not empty"),
            (ErrorCode::DiskFull, "The sandbox's disk is full"),
        ])
        .handler(relocate)
}

async fn relocate(call: Call) -> Result<Json<api::FileEntry>, ApiError> {
    let request = FileRequest::to("move", &call).await?;
    let order = |query: &reader::FileQuery| {
        let (from, to) = (query.named_path("from")?, query.named_path("to")?);
        Ok(FileOp::Move { from, to, overwrite: query.flag("overwrite")? })
    };
    let begun = request.begin(order).await;
    let work = request.sandbox.touched(begun)?;
    let (from, path) = (view::text(&work.paths[0]), work.paths[1].clone());
    let info = work.info().await.map_err(|error| request.fault(error))?;
    request.record_deleted(&from);
    request.record_created(&path, &info);
    Json::ok(&view::entry(&path, &info))
}
