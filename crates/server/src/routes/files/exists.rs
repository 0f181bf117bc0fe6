//! `GET /v1/sandboxes/{id}/files/exists`: whether something is at a path.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use engine::{EngineError, FileErrorKind, FileOp};

use super::Asked;
use crate::error::ApiError;
use crate::keyring::Caller;
use crate::routes::view;
use crate::service::Service;

/// Whether something is at a path
///
/// Also a link that leads nowhere is something.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files/exists", operation_id = "fileExists", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/notes.txt"),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    responses(
        (status = 200, description = "Whether there is.", body = api::FileExists),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn exists(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?;
    let work = asked.begin(|query| Ok(FileOp::Stat { path: query.path("path")?, follow: false })).await?;
    let exists = match work.info().await {
        Ok(_) => true,
        Err(EngineError::File(fault))
            if matches!(fault.kind, FileErrorKind::NotFound | FileErrorKind::NotADirectory) =>
        {
            false
        }
        Err(error) => return Err(asked.fault(error)),
    };
    view::ok(&api::FileExists { exists })
}
