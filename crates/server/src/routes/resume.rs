//! `POST /v1/sandboxes/{id}/resume`. Answers when its processes run again and that is on disk.

use std::sync::Arc;

use api::{ResumeResult, SandboxState};
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{read, view};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::service::Service;

/// Resume a paused sandbox
///
/// Its processes go on where they stopped; `timeoutMs` and `idleTimeoutMs` stay in effect. A body is ignored.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/resume", operation_id = "resumeSandbox", tag = "Sandboxes",
    params(("id" = api::SandboxId, Path, description = "Id of the sandbox.")),
    responses(
        (status = 200, description = "It is running.", body = ResumeResult),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 409, description = "It is not `paused`: `INVALID_STATE`.")
    )
)]
pub async fn resume(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(&uri)?;
    let resumed = service.engine.sandbox(&caller.account, &id).resume().await;
    let resumed = resumed.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&ResumeResult {
        id: resumed.id,
        state: SandboxState::Running,
        resumed_at: resumed.resumed_at.into(),
        paused_duration_ms: resumed.paused_duration_ms,
    })
}
