//! `POST /v1/sandboxes/{id}/files/move`: gives a file, a link or a directory another name.

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

/// Move or rename
///
/// In one step, a whole directory too. Between two file systems of the sandbox it is copied and then deleted where it was.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/files/move", operation_id = "moveFile", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("from" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.txt"),
        ("to" = String, Query, description = "Its new path; not the directory to put it in.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.old"),
        ("overwrite" = Option<bool>, Query, nullable = false, description = "Takes the place of a file, or of an empty directory, that is there; `false` where it is left out."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to.")
    ),
    responses(
        (status = 200, description = "What is now at `to`.", body = api::FileEntry),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at `from`, or no directory for `to`: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. There is something at `to`: `FILE_EXISTS`, or with `overwrite` `NOT_A_FILE`, `NOT_A_DIRECTORY` and `DIRECTORY_NOT_EMPTY` where it cannot be replaced."),
        (status = 507, description = "The sandbox's disk is full: `DISK_FULL`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn relocate(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?.to("move").in_run(&headers)?;
    let order = |query: &reader::FileQuery| {
        let (from, to) = (query.path("from")?, query.path("to")?);
        Ok(FileOp::Move { from, to, overwrite: query.flag("overwrite", false)? })
    };
    let begun = asked.begin(order).await;
    let work = asked.touched(begun)?;
    let (from, path) = (shown::text(&work.paths[0]), work.paths[1].clone());
    let info = work.info().await.map_err(|error| asked.fault(error))?;
    asked.tell_deleted(&from);
    asked.tell_created(&path, &info);
    view::ok(&shown::entry(&path, &info))
}
