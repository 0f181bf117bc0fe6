//! `DELETE /v1/sandboxes/{id}/files`: deletes a path.

use admission::endpoint::{CHANGE, Json, Parameter, Tag};
use admission::error::ApiError;
use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{COMMON_ERRORS, FileRequest, view};
use crate::endpoint::{Call, Endpoint};

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}/files", CHANGE)
        .describe(
            "deleteFile",
            Tag::Files,
            "Delete a file or directory",
            "Deletes a symbolic link itself, not its target. After a failure a directory may be partly \
             deleted.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/notes.txt"),
            Parameter::flag("recursive", "Whether to delete a directory with its content; default `false`."),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .returns::<api::FileDeleted>(StatusCode::OK, "The file or directory is deleted.")
        .errors(COMMON_ERRORS)
        .errors([
            (ErrorCode::FileNotFound, "The path does not exist"),
            (ErrorCode::DirectoryNotEmpty, "The directory is not empty"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
        ])
        .handler(delete)
}

async fn delete(call: Call) -> Result<Json<api::FileDeleted>, ApiError> {
    let request = FileRequest::to("delete", &call).await?;
    let order = |query: &reader::FileQuery| {
        Ok(FileOp::Delete { path: query.path("path")?, recursive: query.flag("recursive")? })
    };
    let begun = request.begin(order).await;
    let work = request.sandbox.touched(begun)?;
    let path = view::text(&work.paths[0]);
    let tally = work.tally().await.map_err(|error| request.fault(error))?;
    let deleted = tally.files.saturating_add(tally.directories).saturating_add(tally.links);
    request.record_deleted(&path);
    Json::ok(&api::FileDeleted { path, deleted })
}
