//! `DELETE /v1/sandboxes/{id}/ports/{port}`: a port is reached from outside no more.

use std::sync::Arc;

use api::PortClosed;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use axum::response::Response;

use super::named;
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::routes::{read, view};
use crate::service::Service;

/// Close a port
///
/// Connections through it are cut, and its tokens are good for nothing, also when it is exposed again. A paused sandbox stays
/// paused.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{id}/ports/{port}", operation_id = "closePort", tag = "Ports",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("port" = u16, Path, description = "The port.", minimum = 1, maximum = 65535, example = 8080)
    ),
    responses(
        (status = 200, description = "It is closed.", body = PortClosed),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`. The port is not exposed: `PORT_NOT_FOUND`."),
        (status = 409, description = "The sandbox is neither `running` nor `paused`: `INVALID_STATE`.")
    )
)]
pub async fn close(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, ApiError> {
    let (id, port) = named(&service, &caller.account, &uri).await?;
    let run = read::run_id(&headers).inspect_err(|_| service.engine.sandbox(&caller.account, &id).touch())?;
    let closed = service.engine.sandbox(&caller.account, &id).close_port(port, run).await;
    let closed_at = closed.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&PortClosed { port, closed_at: closed_at.into() })
}
