//! `GET /v1/sandboxes/{id}/ports`: the exposed ports of a sandbox.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::{ErrorCode, PortList};
use axum::http::StatusCode;
use service::error::OperationKind;

use crate::endpoint::{Call, Endpoint};
use crate::routes::requested_sandbox::RequestedSandbox;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/v1/sandboxes/{id}/ports", INSPECT)
        .describe(
            "listPorts",
            Tag::Ports,
            "List ports",
            "Lists the exposed ports of a sandbox, sorted by number.",
        )
        .parameters([Parameter::SANDBOX_ID])
        .returns::<PortList>(StatusCode::OK, "All exposed ports; there are at most 64.")
        .errors([(ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated")])
        .handler(list)
}

async fn list(call: Call) -> Result<Json<PortList>, ApiError> {
    let sandbox = RequestedSandbox::of(&call, OperationKind::Other)?;
    let ports = sandbox.handle().ports().await.map_err(|error| sandbox.fault(error))?;
    let data = ports.iter().map(|port| call.service.ports.view(&sandbox.id, port)).collect();
    Json::ok(&PortList { data })
}
