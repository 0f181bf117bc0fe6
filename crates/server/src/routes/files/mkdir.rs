//! `POST /v1/sandboxes/{id}/files/mkdir`: makes a directory.

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

/// Make a directory
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/files/mkdir", operation_id = "makeDirectory", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/src/new"),
        ("recursive" = Option<bool>, Query, nullable = false, description = "Makes those above it too, and is content with one that is there; `false` where it is left out."),
        ("mode" = Option<String>, Query, nullable = false, description = "Its mode, octal; 755 where it is left out.", pattern = r"^[0-7]{3,4}$", example = "0755"),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to.")
    ),
    responses(
        (status = 200, description = "The directory.", body = api::FileEntry),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. The directory above it is not there: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. There is something of that name: `FILE_EXISTS`. Something on the way is no directory: `NOT_A_DIRECTORY`."),
        (status = 507, description = "The sandbox's disk is full: `DISK_FULL`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn mkdir(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?.to("mkdir").in_run(&headers)?;
    let order = |query: &reader::FileQuery| {
        let (path, mode) = (query.path("path")?, query.mode()?);
        Ok(FileOp::MakeDir { path, mode, recursive: query.flag("recursive", false)? })
    };
    let begun = asked.begin(order).await;
    let work = asked.touched(begun)?;
    let path = work.paths[0].clone();
    let info = work.info().await.map_err(|error| asked.fault(error))?;
    asked.tell_created(&path, &info);
    view::ok(&shown::entry(&path, &info))
}
