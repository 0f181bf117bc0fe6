//! `DELETE /v1/sandboxes/{id}`. Answers when no process of the sandbox runs any more and that is on disk.

use std::sync::Arc;

use api::{SandboxState, TerminateResult};
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{read, view};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::service::Service;

/// As `details.reason` says it to whoever asks for the sandbox afterwards.
const REASON: &str = "deleted";

/// Terminate a sandbox
///
/// For good: its processes end and its files are deleted. A body is ignored.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}", operation_id = "terminateSandbox", tag = "Sandboxes",
    params(("id" = api::SandboxId, Path, description = "Id of the sandbox.")),
    responses(
        (status = 200, description = "It is terminated.", body = TerminateResult),
        (status = 404, description = "There is no such sandbox, or it was terminated before: `SANDBOX_NOT_FOUND`.")
    )
)]
pub async fn terminate(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(&uri)?;
    let terminated = service.engine.sandbox(&caller.account, &id).terminate(REASON).await;
    let terminated = terminated.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&TerminateResult {
        id: terminated.id,
        state: SandboxState::Terminated,
        terminated_at: terminated.terminated_at.into(),
        total_runtime_ms: terminated.total_runtime_ms,
    })
}
