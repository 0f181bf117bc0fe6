//! `GET` and `PATCH /v1/sandboxes/{id}/network`: what a sandbox may reach, and another answer to that while it lives.
//!
//! A change is in force and recorded when it is answered. It goes on to its end when the client goes away.

use std::sync::Arc;

use api::{CreateNetwork, NetworkUsage, NetworkView, SandboxView};
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use bytes::Bytes;

use super::named::Named;
use super::{read, view};
use crate::error::{ApiError, During, of_engine};
use crate::keyring::Caller;
use crate::once::Answer;
use crate::service::Service;

/// A thousand domains of the greatest length, and room.
const BODY_MAX: usize = 1 << 20;

/// The network of a sandbox
///
/// Its policy, and what it sent and received since its processes were last started.
#[utoipa::path(
    get, path = "/v1/sandboxes/{id}/network", operation_id = "getNetwork", tag = "Network",
    params(("id" = api::SandboxId, Path, description = "Id of the sandbox.")),
    responses(
        (status = 200, description = "Its network.", body = NetworkView),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`.")
    )
)]
pub async fn get(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, ApiError> {
    let id = read::sandbox_id(&uri)?;
    let network = service.engine.sandbox(&caller.account, &id).network().await;
    let (policy, usage) = network.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    view::ok(&NetworkView {
        egress: policy.egress,
        ingress: policy.ingress,
        usage: NetworkUsage {
            bytes_out: usage.bytes_out,
            bytes_in: usage.bytes_in,
            connections: usage.connections,
        },
    })
}

/// Change the network policy of a sandbox
///
/// What is given takes the place of what was there, `allow` as a whole; the rest stays as it is. New connections go by it at
/// once, and open ones that it does not allow are cut. A paused sandbox stays paused.
#[utoipa::path(
    patch, path = "/v1/sandboxes/{id}/network", operation_id = "changeNetwork", tag = "Network",
    params(
        ("id" = api::SandboxId, Path, description = "Id of the sandbox."),
        ("Idempotency-Key" = Option<String>, Header, nullable = false, min_length = 1, max_length = 255, pattern = r"^[\x21-\x7e]+$",
            description = "As with create.", example = "8e03978e-40d5-43dd-bc93-6894a57f9324")
    ),
    request_body(content = CreateNetwork, description = "Nothing has to be there. Unknown fields are ignored; one that is given twice, or is `null`, is an error.",
        example = json!({"egress": {"allow": ["example.com", "*.example.org"], "default": "deny"}})),
    responses(
        (status = 200, description = "The sandbox with its new policy, which is in force.", body = SandboxView,
            headers(("Idempotency-Replayed" = String, description = "`true` on an answer that was given before under the same key."))),
        (status = 400, description = "Malformed or wrongly typed: `INVALID_REQUEST`. A value out of its range or set: `INVALID_CONFIG`."),
        (status = 404, description = "There is no such sandbox, or it was terminated: `SANDBOX_NOT_FOUND`."),
        (status = 409, description = "It is neither `running` nor `paused`: `INVALID_STATE`."),
        (status = 413, description = "The body is larger than 1 MiB: `INVALID_REQUEST`.")
    )
)]
pub async fn change(
    State(service): State<Arc<Service>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let named = Named::find(&service, &caller, &parts, "network", During::Other).await?;
    let key = named.key()?;
    let body = named.body(body, BODY_MAX).await?;
    let (id, endpoint) = (named.id, named.endpoint);
    let (shared, account, asked) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |_| async move { carry_out(&shared, &account, &id, &asked).await };
    service.once.run(&caller, &endpoint, key, body, work).await
}

async fn carry_out(
    service: &Service,
    account: &str,
    id: &api::SandboxId,
    body: &Bytes,
) -> Result<Answer, ApiError> {
    let engine = &service.engine;
    let change =
        reader::network(body, &service.config_rules).inspect_err(|_| engine.sandbox(account, id).touch())?;
    let changed = engine.sandbox(account, id).change_network(change).await;
    let status = changed.map_err(|error| of_engine(error, Some(id.as_str()), During::Other))?;
    Ok(Answer::new(StatusCode::OK, view::json(&view::sandbox(&status.record))?))
}
