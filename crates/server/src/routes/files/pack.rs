//! `GET /v1/sandboxes/{id}/files/tar`: a directory as an archive.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use engine::{FileOp, FileResponse};

use super::{Asked, outgoing, shown};
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::service::Service;

/// A directory as a tar archive
///
/// With names below the directory. Devices, fifos, sockets and what is mounted below it are left out. An archive that breaks off has no end.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files/tar", operation_id = "packDirectory", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/project"),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out."),
        ("X-Run-Id" = inline(Option<api::RunId>), Header, nullable = false, description = "The run that its events belong to.")
    ),
    responses(
        (status = 200, description = "The archive, in pax.", content((String = "application/x-tar"))),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at the path: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. It is no directory: `NOT_A_DIRECTORY`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn pack(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?.to("pack").in_run(&headers)?;
    let mut work = asked.begin(|query| Ok(FileOp::Pack { path: query.path("path")? })).await?;
    match work.next_response().await.map_err(|error| asked.fault(error))? {
        FileResponse::Packing => {}
        _ => return Err(ApiError::internal("an errand packed and said something else")),
    }
    asked.tell_archive(api::EventKind::FileRead, &shown::text(&work.paths[0]));
    let body = outgoing::body(work, None, asked.service.stopping.clone());
    Ok(([(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"))], body).into_response())
}
