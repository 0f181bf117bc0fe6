//! `POST /v1/sandboxes/{id}/ports`: exposes a port. Completes if the client disconnects.

use admission::endpoint::{CHANGE, Content, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{ErrorCode, ExposeBody, Port, RunId};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::ReplayableResponse;

use crate::endpoint::{Call, Endpoint};
use crate::routes::requested_sandbox::RequestedSandbox;
use crate::routes::sandbox_request::SandboxRequest;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/ports", CHANGE)
        .describe(
            "exposePort",
            Tag::Ports,
            "Expose a port",
            "Makes a port of the sandbox reachable at the URL in the response, whether or not a \
             program listens yet. A private port requires an API key of the account with the \
             scope `execute`, or a token. If the port is exposed already, its tokens become \
             invalid and its connections are closed. A paused sandbox stays paused until there is \
             traffic.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::IDEMPOTENCY_KEY])
        .json_body::<ExposeBody>(
            64 << 10,
            Content::json::<ExposeBody>().example(json!({"port": 8080, "visibility": "private"})),
            "A repeated or `null` field is an error.",
        )
        .returns::<Port>(StatusCode::CREATED, "The port with its URL.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed, or 64 ports are exposed already"),
            (
                ErrorCode::PortNotAllowed,
                "The sandbox's `network.ingress.allowPorts` does not include the port",
            ),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
        ])
        .handler(expose)
}

async fn expose(call: Call<Caller, JsonBody<ExposeBody>>) -> Result<Json<Port>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let (key, run) = (request.key()?, request.run_id()?);
    let body = request.body(body).await?;
    let work = move |sandbox, body, _| carry_out(sandbox, body, run);
    request.once(key, body, work).await.map(Json::written)
}

async fn carry_out(
    sandbox: RequestedSandbox,
    body: Received<ExposeBody>,
    run: Option<RunId>,
) -> Result<ReplayableResponse, ApiError> {
    let order = sandbox.touched(body.read(&()))?;
    let exposed = sandbox.handle().expose(order, run).await.map_err(|error| sandbox.fault(error))?;
    let view = sandbox.service.ports.view(&sandbox.id, &exposed);
    Ok(ReplayableResponse::new(StatusCode::CREATED, serialize(&view)?))
}
