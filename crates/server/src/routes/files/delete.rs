//! `DELETE /v1/sandboxes/{id}/files`: deletes what is at a path.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;
use engine::FileOp;

use super::{Asked, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::view;
use crate::service::Service;

/// Delete
///
/// A link is deleted, and not what it leads to. What was deleted before a failure stays deleted.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/files", operation_id = "deleteFile", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.txt"),
        ("recursive" = Option<bool>, Query, nullable = false, description = "Deletes a directory with all in it; `false` where it is left out."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to.")
    ),
    responses(
        (status = 200, description = "It is gone.", body = api::FileDeleted),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at the path: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. The directory is not empty: `DIRECTORY_NOT_EMPTY`. Something on the way is no directory: `NOT_A_DIRECTORY`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn delete(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?.to("delete").in_run(&headers)?;
    let order = |query: &reader::FileQuery| {
        Ok(FileOp::Delete { path: query.path("path")?, recursive: query.flag("recursive", false)? })
    };
    let begun = asked.begin(order).await;
    let work = asked.touched(begun)?;
    let path = shown::text(&work.paths[0]);
    let tally = work.tally().await.map_err(|error| asked.fault(error))?;
    let deleted = tally.files.saturating_add(tally.directories).saturating_add(tally.links);
    asked.tell_deleted(&path);
    view::ok(&api::FileDeleted { path, deleted })
}
