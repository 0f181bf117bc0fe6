//! `GET` and `PATCH /v1/sandboxes/{id}/network`: reads and changes the network policy of a sandbox.
//!
//! A change is in effect and stored before the response. It completes if the client disconnects.

use admission::endpoint::{CHANGE, Content, INSPECT, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{CreateNetwork, ErrorCode, NetworkUsage, NetworkView, SandboxView};
use axum::http::StatusCode;
use serde_json::json;
use service::error::OperationKind;
use service::idempotency::ReplayableResponse;

use super::requested_sandbox::RequestedSandbox;
use super::sandbox_request::SandboxRequest;
use super::view;
use crate::endpoint::{Call, Endpoint};

pub fn get_endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/network", INSPECT)
        .describe(
            "getNetwork",
            Tag::Network,
            "Get the network of a sandbox",
            "Returns the policy and the traffic since the sandbox's processes were last started.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .returns::<NetworkView>(StatusCode::OK, "The policy and the traffic counters.")
        .errors([(ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated")])
        .handler(get)
}

async fn get(call: Call) -> Result<Json<NetworkView>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Other)?;
    let network = sandbox.handle().network().await;
    let (policy, usage) = network.map_err(|error| sandbox.fault(error))?;
    Json::ok(&NetworkView {
        egress: policy.egress,
        ingress: policy.ingress,
        usage: NetworkUsage {
            bytes_out: usage.bytes_out,
            bytes_in: usage.bytes_in,
            connections: usage.connections,
        },
    })
}

pub fn change_endpoint() -> Endpoint {
    Endpoint::patch("/v1/sandboxes/{id}/network", CHANGE)
        .describe(
            "changeNetwork",
            Tag::Network,
            "Change the network policy of a sandbox",
            "Replaces the fields in the body (`allow` as a whole); other fields keep their values. From \
             the response on, the policy applies to new connections, and connections that it does not \
             allow are closed. Does not resume a paused sandbox.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::IDEMPOTENCY_KEY])
        .json_body::<CreateNetwork>(
            1 << 20,
            Content::json::<CreateNetwork>().example(json!({
                "egress": {"allow": ["example.com", "*.example.org"], "default": "deny"},
            })),
            "All fields are optional. A repeated or `null` field is \
                     an error.",
        )
        .returns::<SandboxView>(StatusCode::OK, "The sandbox with its new policy, which is in effect.")
        .replayable()
        .errors([
            (ErrorCode::InvalidRequest, "The body is malformed or a field has a wrong type"),
            (ErrorCode::InvalidConfig, "A value is not allowed"),
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
        ])
        .handler(change)
}

async fn change(call: Call<Caller, JsonBody<CreateNetwork>>) -> Result<Json<SandboxView>, ApiError> {
    let (call, body) = call.split_body();
    let request = SandboxRequest::find(&call, OperationKind::Other).await?;
    let key = request.key()?;
    let body = request.body(body).await?;
    request.once(key, body, |sandbox, body, _| carry_out(sandbox, body)).await.map(Json::written)
}

async fn carry_out(
    sandbox: RequestedSandbox,
    body: Received<CreateNetwork>,
) -> Result<ReplayableResponse, ApiError> {
    let change = sandbox.touched(body.read(&sandbox.service.config_rules))?;
    let status = sandbox.handle().change_network(change).await.map_err(|error| sandbox.fault(error))?;
    Ok(ReplayableResponse::new(StatusCode::OK, serialize(&view::sandbox(&status.record))?))
}
