//! `POST /v1/sandboxes/{id}/ports/{port}/token`: a key to one port, for a while.
//!
//! Nothing is kept of it, and so nothing under an idempotency key: asking again gives another token that is as good.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use api::{PortToken, TokenBody};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use rules::TimeMs;

use super::named;
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::routes::{read, view};
use crate::service::Service;

const BODY_MAX: usize = 64 << 10;

/// Make a token for a port
///
/// Whoever has it reaches the port until it expires, the port is closed or exposed anew, or the sandbox ends. It goes as the
/// header `X-Sandbox-Token`, or as `sandbox_token` in the query of the first request of a browser, which then keeps it as a cookie.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/ports/{port}/token", operation_id = "createPortToken", tag = "Ports",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("port" = u16, Path, description = "The port.", minimum = 1, maximum = 65535, example = 8080)
    ),
    request_body(content = TokenBody, description = "Nothing has to be in it. Unknown fields are ignored; one that is given twice, or is `null`, is an error.",
        example = json!({"expiresInMs": 600_000})),
    responses(
        (status = 201, description = "The token.", body = PortToken),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. A value out of its range: `INVALID_CONFIG`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`. The port is not exposed: `PORT_NOT_FOUND`."),
        (status = 413, description = "The body is larger than 64 KiB: `INVALID_REQUEST`.")
    )
)]
pub async fn token(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let (id, port) = named(&service, &caller.account, &parts.uri).await?;
    let exposed = service.engine.sandbox(&caller.account, &id).port(port).await;
    service.engine.sandbox(&caller.account, &id).touch();
    let exposed = exposed.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    let memory = service.request_memory.body(&caller.account, BODY_MAX);
    let body = read::json_body(&parts.headers, body, memory).await?;
    let lifetime_ms = reader::port_token(&body)?;
    let expires_at = now().after(lifetime_ms);
    let token = service.ports.token(&id, &exposed, expires_at);
    let url = format!("{}/?sandbox_token={token}", service.ports.url(&id, port));
    let made = PortToken { token, expires_at: expires_at.into(), url };
    let mut response = view::ok(&made)?;
    *response.status_mut() = StatusCode::CREATED;
    Ok(response)
}

fn now() -> TimeMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
