//! `PUT /v1/sandboxes/{id}/files`: puts a body in the place of a file.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use engine::FileOp;

use super::{Asked, shown, upload};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::view;
use crate::service::Service;

/// Write a file
///
/// The body is its content, of any size and type. It takes the place of the file in one step when all of it is there: an upload that
/// breaks off leaves the old file as it was. A file that is replaced keeps its owner, and its mode unless one is given. A link is followed.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/files", operation_id = "writeFile", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.txt"),
        ("mode" = Option<String>, Query, nullable = false, description = "Its mode, octal; 644 for a new file where it is left out.", pattern = r"^[0-7]{3,4}$", example = "0644"),
        ("parents" = Option<bool>, Query, nullable = false, description = "Makes the directories above it; `false` where it is left out."),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to.")
    ),
    request_body(content = Option<String>, content_type = "application/octet-stream", description = "The content; an empty file without it."),
    responses(
        (status = 200, description = "The file.", body = api::FileEntry),
        (status = 400, description = "The request cannot be read, or its body broke off: `INVALID_REQUEST`."),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. The directory is not there: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. A directory, a device, a fifo or a socket is there: `NOT_A_FILE`. Something on the way is no directory: `NOT_A_DIRECTORY`."),
        (status = 507, description = "The sandbox's disk is full: `DISK_FULL`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn write(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let asked = Asked::new(service, &caller, &parts.uri).await?.to("write").in_run(&parts.headers)?;
    asked.touched(upload::check(&parts.headers))?;
    let order = |query: &reader::FileQuery| {
        let (path, mode) = (query.path("path")?, query.mode()?);
        Ok(FileOp::Write { path, mode, parents: query.flag("parents", false)? })
    };
    let begun = asked.begin(order).await;
    let mut work = asked.touched(begun)?;
    let path = work.paths[0].clone();
    upload::feed(&asked, &mut work, body).await?;
    let info = work.info().await.map_err(|error| asked.fault(error))?;
    asked.tell_created(&path, &info);
    view::ok(&shown::entry(&path, &info))
}
