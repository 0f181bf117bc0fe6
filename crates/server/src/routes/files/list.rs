//! `GET /v1/sandboxes/{id}/files/list`: a page of a directory.

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

/// List a directory
///
/// By name where it has at most 10,000 entries; a larger one in its own order, which stays the same while it does not change.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/files/list", operation_id = "listFiles", tag = "Files",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("path" = String, Query, description = "Absolute, or relative to the sandbox's working directory; any bytes, percent-encoded.", min_length = 1, max_length = 4095, pattern = r"^[^\x00]+$", example = "/workspace/"),
        ("limit" = Option<u32>, Query, description = "Entries a page; 20 where it is left out.", nullable = false, minimum = 1, maximum = 100),
        ("offset" = Option<u64>, Query, description = "Entries to skip; none where it is left out.", nullable = false, minimum = 0, maximum = 9_007_199_254_740_991u64),
        ("autoResume" = Option<bool>, Query, nullable = false, description = "Whether a paused sandbox is resumed for this; `true` where it is left out.")
    ),
    responses(
        (status = 200, description = "A page.", body = api::FileList),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox does not permit it: `PERMISSION_DENIED`."),
        (status = 404, description = "There is no such sandbox: `SANDBOX_NOT_FOUND`. There is nothing at the path: `FILE_NOT_FOUND`."),
        (status = 409, description = "The sandbox is not `running`, and not to be resumed: `INVALID_STATE`. It is no directory: `NOT_A_DIRECTORY`."),
        (status = 502, description = "The sandbox failed: `EXECUTION_ERROR`.")
    )
)]
pub async fn list(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let asked = Asked::new(service, &caller, &uri).await?;
    let (offset, limit) = asked.query.page()?;
    let work = asked.begin(|query| Ok(FileOp::List { path: query.path("path")?, offset, limit })).await?;
    let dir = work.paths[0].clone();
    let listed = work.into_page(limit).await.map_err(|error| asked.fault(error))?;
    let data =
        listed.entries.iter().map(|(name, info)| shown::entry(&shown::below(&dir, name), info)).collect();
    let pagination = api::Pagination::new(listed.total, limit, offset);
    view::ok(&api::FileList { data, pagination })
}
