//! `DELETE /v1/sandboxes/{id}/ports/{port}`: closes an exposed port.

use admission::endpoint::{CHANGE, Json, Parameter, Tag};
use admission::error::ApiError;
use api::{ErrorCode, PortClosed};
use axum::http::StatusCode;

use super::sandbox_and_port;
use crate::endpoint::{Call, Endpoint};
use crate::routes::read;

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/v1/sandboxes/{id}/ports/{port}", CHANGE)
        .describe(
            "closePort",
            Tag::Ports,
            "Close a port",
            "Closes the port and the connections through it, and invalidates its tokens permanently, even \
             if the port is exposed again. Does not resume a paused sandbox.",
        )
        .parameters([Parameter::SANDBOX_ID, Parameter::PORT])
        .returns::<PortClosed>(StatusCode::OK, "The port is closed.")
        .errors([
            (ErrorCode::SandboxNotFound, "The sandbox does not exist or is terminated"),
            (ErrorCode::PortNotFound, "The port is not exposed"),
            (ErrorCode::InvalidState, "The sandbox is neither `running` nor `paused`"),
        ])
        .handler(close)
}

async fn close(call: Call) -> Result<Json<PortClosed>, ApiError> {
    let (sandbox, port) = sandbox_and_port(&call).await?;
    let run = sandbox.touched(read::run_id(&call.parts.headers))?;
    let closed = sandbox.handle().close_port(port, run).await;
    let closed_at = closed.map_err(|error| sandbox.fault(error))?;
    Json::ok(&PortClosed { port, closed_at: closed_at.into() })
}
