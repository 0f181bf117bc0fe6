//! `POST /v1/sandboxes/{id}/ports`: a port inside gets an address outside. Goes on to its end when the client goes away.

use std::sync::Arc;

use api::{ExposeBody, Port, RunId};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;

use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::once::Answer;
use crate::routes::named::Named;
use crate::routes::view;
use crate::service::Service;

const BODY_MAX: usize = 64 << 10;

/// Expose a port
///
/// What listens on it inside is reached at the URL of the answer, now or whenever something does. A private port wants an API key of
/// the account with the scope `execute`, or a token. A port that is exposed already is exposed anew: its tokens are good for nothing
/// any more, and connections through it are cut. A paused sandbox stays paused until there is traffic.
#[utoipa::path(
    post, path = "/v1/sandboxes/{id}/ports", operation_id = "exposePort", tag = "Ports",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = r"^[\x21-\x7e]+$",
            description = "As with create.", example = "8e03978e-40d5-43dd-bc93-6894a57f9324")
    ),
    request_body(content = ExposeBody, description = "Unknown fields are ignored; one that is given twice, or is `null`, is an error.",
        example = json!({"port": 8080, "visibility": "private"})),
    responses(
        (status = 201, description = "The port with its URL.", body = Port,
            headers(("Idempotency-Replayed" = String, description = "`true` on an answer that was given before under the same key."))),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. A value out of its range or set, or more than 64 ports: `INVALID_CONFIG`."),
        (status = 403, description = "The key lacks the scope: `FORBIDDEN`. The sandbox's `network.ingress.allowPorts` does not name the port: `PORT_NOT_ALLOWED`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 409, description = "The sandbox is neither `running` nor `paused`: `INVALID_STATE`."),
        (status = 413, description = "The body is larger than 64 KiB: `INVALID_REQUEST`.")
    )
)]
pub async fn expose(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let named = Named::find(&service, &caller, &parts, "ports", During::Other).await?;
    let (key, run) = (named.key()?, named.run_id()?);
    let body = named.body(body, BODY_MAX).await?;
    let (id, endpoint) = (named.id, named.endpoint);
    let (shared, account, asked) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |_| async move { carry_out(&shared, &account, &id, &asked, run).await };
    service.once.run(&caller, &endpoint, key, body, work).await
}

async fn carry_out(
    service: &Service,
    account: &str,
    id: &api::SandboxId,
    body: &Bytes,
    run: Option<RunId>,
) -> Result<Answer, ApiError> {
    let engine = &service.engine;
    let order = reader::expose(body).inspect_err(|_| engine.sandbox(account, id).touch())?;
    let exposed = engine.sandbox(account, id).expose(order, run).await;
    let exposed = exposed.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    Ok(Answer::new(StatusCode::CREATED, view::json(&service.ports.shown(id, &exposed))?))
}
