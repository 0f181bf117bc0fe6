//! `GET` and `PATCH /v1/sandboxes/{id}/network`: reads and changes the network policy of a sandbox.
//!
//! A change is in effect and stored before the response. It completes if the client disconnects.

use std::sync::Arc;

use admission::endpoint::{CHANGE, Content, INSPECT, Json, JsonBody, Parameter, Received, Tag, serialize};
use admission::error::ApiError;
use admission::keyring::Caller;
use api::{CreateNetwork, ErrorCode, NetworkUsage, NetworkView, SandboxView};
use axum::http::StatusCode;
use serde_json::json;
use service::Service;
use service::error::{OperationKind, of_engine};
use service::idempotency::ReplayableResponse;

use super::sandbox_request::SandboxRequest;
use super::{read, view};
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
    let Call { service, caller, parts, .. } = call;
    let id = read::sandbox_id(&parts.uri)?;
    let network = service.engine.sandbox(&caller.account, &id).network().await;
    let (policy, usage) =
        network.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
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
    let Call { service, caller, path, parts, body, .. } = call;
    let request = SandboxRequest::find(&service, &caller, &parts, path, OperationKind::Other).await?;
    let key = request.key()?;
    let body = request.body(body).await?;
    let (id, endpoint) = (request.id, request.endpoint);
    let (shared, account, received) = (Arc::clone(&service), Arc::clone(&caller.account), body.clone());
    let work = move |_| async move { carry_out(&shared, &account, &id, &received).await };
    service.idempotency.run(&caller, &endpoint, key, body.bytes, work).await.map(Json::written)
}

async fn carry_out(
    service: &Service,
    account: &str,
    id: &api::SandboxId,
    body: &Received<CreateNetwork>,
) -> Result<ReplayableResponse, ApiError> {
    let engine = &service.engine;
    let change = body.read(&service.config_rules).inspect_err(|_| engine.sandbox(account, id).touch())?;
    let changed = engine.sandbox(account, id).change_network(change).await;
    let status = changed.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
    Ok(ReplayableResponse::new(StatusCode::OK, serialize(&view::sandbox(&status.record))?))
}
