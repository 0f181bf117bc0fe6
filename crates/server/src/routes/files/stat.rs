//! `GET /v1/sandboxes/{id}/files/stat`: what is at a path.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use engine::FileOp;

use super::{Asked, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::view;
use crate::service::Service;

/// What is at a path
///
/// A link is told of as itself, with `linkTarget`, unless `follow` is `true`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files/stat", operation_id = "statFile", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.txt"),
        ("follow" = Option<bool>, Query, nullable = false, description = "Tells of what a link leads to; `false` where it is left out."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    responses(
        (status = 200, description = "What is there.", body = api::FileEntry),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at the path: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. Something on the way is no directory: `NOT_A_DIRECTORY`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn stat(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?;
    let work = asked
        .begin(|query| Ok(FileOp::Stat { path: query.path("path")?, follow: query.flag("follow", false)? }))
        .await?;
    let path = work.paths[0].clone();
    let info = work.info().await.map_err(|error| asked.fault(error))?;
    view::ok(&shown::entry(&path, &info))
}
