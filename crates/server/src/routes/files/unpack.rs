//! `PUT /v1/sandboxes/{id}/files/tar`: unpacks an archive into a directory.

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

/// Unpack a tar archive
///
/// Into a directory, which is made where it is not there. The archive is plain tar (ustar, pax or GNU). Nothing of it gets out of the
/// directory: a `..` is refused, a `/` in front is left away, and no entry goes through a link. Files that are there are replaced.
/// Devices, fifos and sockets are skipped and counted. Everything belongs to root. What was unpacked before a failure stays.
#[utoipa::path(
    put, path = "/v1/sandboxes/{id}/files/tar", operation_id = "unpackArchive", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/project"),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to.")
    ),
    request_body(content = String, content_type = "application/x-tar", description = "The archive."),
    responses(
        (status = 200, description = "What came out of it.", body = api::Unpacked),
        (status = 400, description = "The body is no such archive, broke off, or would leave the directory: `INVALID_REQUEST`."),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at the path: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. Something is in the way: `FILE_EXISTS`, `NOT_A_DIRECTORY`, `DIRECTORY_NOT_EMPTY`."),
        (status = 507, description = "The sandbox's disk is full: `DISK_FULL`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn unpack(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let asked = Asked::new(service, &caller, &parts.uri).await?.to("unpack").in_run(&parts.headers)?;
    asked.touched(upload::check(&parts.headers))?;
    let begun = asked.begin(|query| Ok(FileOp::Unpack { path: query.path("path")? })).await;
    let mut work = asked.touched(begun)?;
    let path = shown::text(&work.paths[0]);
    upload::feed(&asked, &mut work, body).await?;
    let tally = work.tally().await.map_err(|error| asked.fault(error))?;
    asked.tell_archive(api::EventKind::FileCreated, &path);
    view::ok(&api::Unpacked {
        path,
        files: tally.files,
        directories: tally.directories,
        links: tally.links,
        skipped: tally.skipped,
        bytes: tally.bytes,
    })
}
