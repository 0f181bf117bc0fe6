//! `POST /v1/sandboxes/{id}/pause`. Answers when the pause is on disk; goes on to its end when the client goes away.

use std::sync::Arc;

use api::{PauseResult, SandboxState};
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{read, view};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::service::Service;

/// Pause a running sandbox
///
/// Its processes stop where they stand; its file system and memory are kept. A body is ignored.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/pause", operation_id = "pauseSandbox", tag = "Sandboxes",
    params(("id" = api::SandboxId, Path, description = "Id of the sandbox.")),
    responses(
        (status = 200, description = "It is paused.", body = PauseResult),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 409, description = "It is not `running`: `INVALID_STATE`.")
    )
)]
pub async fn pause(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(&uri)?;
    let paused = service.engine.sandbox(&caller.account, &id).pause().await;
    let paused = paused.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&PauseResult {
        id: paused.id,
        state: SandboxState::Paused,
        paused_at: paused.paused_at.into(),
        runtime_duration_ms: paused.runtime_duration_ms,
    })
}
