//! `GET /v1/sandboxes/{id}`: one sandbox, as its actor last published it. Reads memory only.

use std::sync::Arc;

use api::SandboxView;
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use super::{read, view};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::service::Service;

/// One sandbox
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}", operation_id = "getSandbox", tag = "Sandboxes",
    params(("id" = api::SandboxId, Path, description = "Id of the sandbox.")),
    responses(
        (status = 200, description = "The sandbox.", body = SandboxView),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`.")
    )
)]
pub async fn get(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(&uri)?;
    let status = service.engine.sandbox(&caller.account, &id).status().await;
    let status = status.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&view::sandbox(&status.record))
}
