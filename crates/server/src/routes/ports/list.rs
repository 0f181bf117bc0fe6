//! `GET /v1/sandboxes/{id}/ports`: which ports of a sandbox are exposed.

use std::sync::Arc;

use api::PortList;
use axum::Extension;
use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;

use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::routes::{read, view};
use crate::service::Service;

/// List ports
///
/// The exposed ports of a sandbox, by their numbers.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/ports", operation_id = "listPorts", tag = "Ports",
    params(("id" = api::SandboxId, Path, description = "Id of the sandbox.")),
    responses(
        (status = 200, description = "All of them; there are at most 64.", body = PortList),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`.")
    )
)]
pub async fn list(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(&uri)?;
    let ports = service.engine.sandbox(&caller.account, &id).ports().await;
    let ports = ports.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&PortList { data: ports.iter().map(|port| service.ports.shown(&id, port)).collect() })
}
