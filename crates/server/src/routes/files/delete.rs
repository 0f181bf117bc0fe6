//! `DELETE /v1/sandboxes/{id}/files`: deletes what is at a path.

use api::ErrorCode;

use axum::http::StatusCode;
use engine::FileOp;

use super::{Asked, shown};
use crate::endpoint::{Call, Endpoint, Json, Parameter, Tag, WRITE};
use crate::error::ApiError;

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}/files", WRITE)
        .describe(
            "deleteFile",
            Tag::Files,
            "Delete a file or directory",
            "Deletes a symbolic link and not its target. After a failure, part of a directory may \
         be deleted.",
        )
        .parameters([
            Parameter::SANDBOX_ID,
            Parameter::file_path("path", "/workspace/notes.txt"),
            Parameter::flag("recursive", "Whether to delete a directory with its content; default `false`."),
            Parameter::AUTO_RESUME,
            Parameter::RUN_ID,
        ])
        .returns::<api::FileDeleted>(StatusCode::OK, "The file or directory is deleted.")
        .errors([
            (ErrorCode::PermissionDenied, "The sandbox denies the operation"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist"),
            (ErrorCode::FileNotFound, "The path does not exist"),
            (
                ErrorCode::InvalidState,
                "The sandbox is not `running`, and `autoResume` is `false` or does not apply",
            ),
            (ErrorCode::DirectoryNotEmpty, "The directory is not empty"),
            (ErrorCode::NotADirectory, "A parent in the path is not a directory"),
            (ErrorCode::ExecutionError, "The sandbox failed"),
        ])
        .handler(delete)
}

async fn delete(call: Call) -> Result<Json<api::FileDeleted>, ApiError> {
    let Call { service, caller, parts, .. } = call;
    let asked = Asked::new(service, &caller, &parts.uri).await?.to("delete").in_run(&parts.headers)?;
    let order = |query: &reader::FileQuery| {
        Ok(FileOp::Delete { path: query.path("path")?, recursive: query.flag("recursive", false)? })
    };
    let begun = asked.begin(order).await;
    let work = asked.touched(begun)?;
    let path = shown::text(&work.paths[0]);
    let tally = work.tally().await.map_err(|error| asked.fault(error))?;
    let deleted = tally.files.saturating_add(tally.directories).saturating_add(tally.links);
    asked.tell_deleted(&path);
    Json::ok(&api::FileDeleted { path, deleted })
}
