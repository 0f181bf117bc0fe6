//! Requests for ports of sandboxes that were created through the E2B-compatible API. No port has to be exposed; the traffic token decides
//! who may use them. Refusals have the bodies that clients of that API know.

use admission::error::ApiError;
use api::SandboxId;
use axum::extract::Request;
use axum::http::{HeaderName, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use e2b::{E2bError, E2bOptions};
use service::Service;

use super::heads::Forwarded;
use super::requester::Requester;
use super::{access, forward, malformed};
use crate::e2b_mount::{E2b, gone, port_closed, port_forbidden};

const TRAFFIC_TOKEN: HeaderName = HeaderName::from_static("e2b-traffic-access-token");

pub async fn pass(service: &Service, e2b: &E2b, mut request: Request, id: &SandboxId, port: u16) -> Response {
    let Some(record) = service.engine.record(id) else { return gone(id) };
    let options = match E2bOptions::of(&record) {
        Ok(Some(options)) => options,
        Ok(None) => return gone(id),
        Err(error) => {
            let cause = error.cause_text();
            tracing::error!(target: "sandboxd::relay", sandbox = %id, port, cause, "a request through a port failed");
            return refuse(service, &error, id, port);
        }
    };
    let token = request.headers_mut().remove(TRAFFIC_TOKEN);
    let is_token = |text: &str| e2b.api.is_traffic_token(&record, text);
    if !options.public_ports && !token.is_some_and(|token| token.to_str().is_ok_and(is_token)) {
        return port_forbidden(id);
    }
    if record.state() == api::SandboxState::Paused && !record.config.auto_resume {
        return gone(id);
    }
    let mask = options.mask_request_host.as_ref().map(|mask| mask.replace("${PORT}", &port.to_string()));
    match carry(service, request, (id, port), record.config.auto_resume, mask).await {
        Ok(response) => {
            service.gate.metrics.ports.answered(response.status().as_u16());
            response
        }
        Err(error) => refuse(service, &error, id, port),
    }
}

async fn carry(
    service: &Service,
    request: Request,
    (id, port): (&SandboxId, u16),
    auto_resume: bool,
    masked_host: Option<String>,
) -> Result<Response, ApiError> {
    if request.method() == Method::CONNECT {
        return Err(malformed("CONNECT is not supported: this service is not a proxy"));
    }
    let requester = Requester::of(&request);
    let exposure = service.engine.implicit_exposure(id, port, auto_resume);
    let exposure = exposure.ok_or_else(service::error::unknown_host)?;
    let mut forwarded = Forwarded::of(&request, service);
    forwarded.masked_host = masked_host;
    let (mut parts, body) = request.into_parts();
    // Removes keys and tokens of the native API; the port is public to it.
    if let access::Access::Redirect(response) =
        access::authorize(service, &exposure, &mut parts, &forwarded, &requester).await?
    {
        return Ok(response);
    }
    forward(service, exposure, Request::from_parts(parts, body), &forwarded).await
}

/// A sandbox that ended or was paused meanwhile is gone; any other failure to reach the program is a closed port.
fn refuse(service: &Service, error: &ApiError, id: &SandboxId, port: u16) -> Response {
    service.gate.metrics.ports.refused(error.code.as_str());
    use api::ErrorCode::{InvalidState, NotFound, PortNotFound, PortUnreachable};
    match (error.code, error.status()) {
        (NotFound | PortNotFound | InvalidState, _) => gone(id),
        (PortUnreachable, StatusCode::BAD_GATEWAY) => port_closed(id, port),
        _ => E2bError::from(error.clone()).into_response(),
    }
}
