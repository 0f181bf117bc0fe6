//! `GET /v1/sandboxes/{id}/ports`: the exposed ports of a sandbox.

use admission::endpoint::{INSPECT, Json, Parameter, Tag};
use admission::error::ApiError;
use api::{ErrorCode, PortList};
use axum::http::StatusCode;
use service::error::{OperationKind, of_engine};

use crate::endpoint::{Call, Endpoint};
use crate::routes::read;

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
    let Call { service, caller, parts, .. } = call;
    let id = read::sandbox_id(&parts.uri)?;
    let ports = service.engine.sandbox(&caller.account, &id).ports().await;
    let ports = ports.map_err(|error| of_engine(error, Some(id.as_str()), OperationKind::Other))?;
    Json::ok(&PortList { data: ports.iter().map(|port| service.ports.view(&id, port)).collect() })
}
