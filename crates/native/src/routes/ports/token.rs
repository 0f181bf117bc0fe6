//! `POST /v1/sandboxes/{id}/ports/{port}/token`: creates a token for an exposed port.
//!
//! Tokens are not stored, and the idempotency key is ignored: a retry gets another valid token.

use admission::endpoint::{CHANGE, Content, Json, JsonBody, Parameter, Tag};
use admission::error::ApiError;
use admission::keyring::Caller;
use admission::wall_clock::now;
use api::{ErrorCode, PortToken, TokenBody};
use axum::http::StatusCode;
use serde_json::json;

use super::sandbox_and_port;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/v1/sandboxes/{id}/ports/{port}/token", CHANGE)
        .describe(
            "createPortToken",
            Tag::Ports,
            "Create a token for a port",
            "The token gives access to the port until it expires, the port is closed or exposed \
         again, or the sandbox terminates. Send it as the header `X-Sandbox-Token`. A browser \
         may send it once as the query parameter `sandbox_token` and then keeps it as a \
         cookie.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::PORT])
        .json_body::<TokenBody>(
            64 << 10,
            Content::json::<TokenBody>().example(json!({"expiresInMs": 600000})),
            "All fields are optional. A repeated or `null` field is \
         an error.",
        )
        .returns::<PortToken>(StatusCode::CREATED, "The token.")
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is out of its range"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::PortNotFound, "The port is not exposed"),
        ])
        .handler(token)
}

async fn token(call: Call<Caller, JsonBody<TokenBody>>) -> Result<Json<PortToken>, ApiError> {
    let (call, body) = call.split_body();
    let (sandbox, port) = sandbox_and_port(&call).await?;
    let exposed = sandbox.handle().port(port).await;
    sandbox.handle().touch();
    let exposed = exposed.map_err(|error| sandbox.fault(error))?;
    let Call { service, caller, parts, .. } = call;
    let body = read::json_body(&service, &caller, &parts.headers, body).await?;
    let lifetime_ms = body.read(&())?;
    let longest = now().after(lifetime_ms);
    // A key that expires must not leave access behind.
    let expires_at = service.gate.keyring.end_of(&caller.key_id).map_or(longest, |end| longest.min(end));
    let token = service.ports.token(&sandbox.id, &exposed, expires_at);
    let url = format!("{}/?sandbox_token={token}", service.ports.url(&sandbox.id, port));
    let token_view = PortToken { token, expires_at: expires_at.into(), url };
    Json::created(&token_view)
}
