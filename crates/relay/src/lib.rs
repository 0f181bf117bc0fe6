//! Forwards requests for exposed ports to the programs inside, and their responses back.
//!
//! [`Relay`] runs before the API: the host of a request alone decides whether it is for a port. The rate limits and body limits of the
//! API do not apply to ports. The order of the steps:
//!
//! ```text
//! host (400, 404) -> access (401, 403, 404; 303 for a browser with a token in the URL) -> a permit (429) -> the sandbox, resumed (409, 503)
//!   -> the program (502, 504) -> its response, streamed
//! ```
//!
//! Each request has its own connection to the program, through the agent and never over the sandbox's network. It is never reused, so a
//! response cannot reach another request. The task that waits for the response drives the connection, so dropping either side ends
//! both. Bytes from a sandbox are hostile: hyper's client parses them, and the head is written anew (`policy`, `heads`).

mod access;
mod cookies;
mod e2b_mount;
mod e2b_port;
mod exchange;
mod heads;
mod origin;
mod policy;
mod requester;
mod response_body;
mod secrets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tunnel;
mod upgrade;

use std::sync::Arc;

use admission::error::ApiError;
use admission::record::ErrorSummary;
use admission::request_id::RequestId;
use api::{ErrorCode, SandboxId};
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use engine::Exposure;
use listen::{Answer, Application, Pace};
use rules::HostOf;
use service::Service;
use service::error::{of_entry, of_full_ports, unknown_host};

use access::Access;
pub use e2b_mount::E2b;
use e2b_mount::Target;
use heads::Forwarded;
use native::Guarded;
use native::interpreter;
use requester::Requester;
use tunnel::ProgramConnection;

/// The API, and the ports before it.
pub struct Relay {
    pub api: Guarded,
    pub e2b: Option<Arc<E2b>>,
}

impl Application for Relay {
    fn answer(&self, request: Request) -> Answer {
        let host = host_of(&request, &self.api.service);
        if let (Some(e2b), Ok(host)) = (&self.e2b, &host)
            && let Some(target) = e2b.target(host, &request)
        {
            let (e2b, service) = (Arc::clone(e2b), Arc::clone(&self.api.service));
            return Box::pin(async move {
                match target {
                    Target::Port(id, port) => e2b_port::pass(&service, &e2b, request, &id, port).await,
                    target => e2b.answer(target, request).await,
                }
            });
        }
        match host {
            Ok(HostOf::Service) => self.api.answer(request),
            other => {
                let service = Arc::clone(&self.api.service);
                Box::pin(async move {
                    match other {
                        Ok(HostOf::Port(id, port)) => pass(&service, request, &id, port).await,
                        Err(refusal) => refuse(&service, &Requester::of(&request), &refusal),
                        Ok(_) => refuse(&service, &Requester::of(&request), &unknown_host()),
                    }
                })
            }
        }
    }
}

/// What a request is for. Its target and `Host` may both name a host; if one of them names a port, both must name the same.
fn host_of(request: &Request, service: &Service) -> Result<HostOf, ApiError> {
    let named = |authority: &Authority| match service.ports.host(authority.host()) {
        HostOf::Service => Ok(HostOf::Service),
        _ if authority.as_str().contains('@') => Err(malformed("the host contains a user name")),
        other => Ok(other),
    };
    let mut found = None;
    let (hosts, target) = (request.headers().get_all(HOST), request.uri().authority());
    let mut texts = hosts.iter().map(HeaderValue::as_bytes).chain(target.map(|it| it.as_str().as_bytes()));
    if !texts.any(|text| service.ports.may_be_named_in(text)) {
        return Ok(HostOf::Service);
    }
    let hosts = hosts.iter().map(|host| host.to_str().ok().and_then(|host| host.parse::<Authority>().ok()));
    for host in hosts.flatten().chain(target.cloned()) {
        let host = named(&host)?;
        match &found {
            None => found = Some(host),
            Some(first) if *first == host => {}
            Some(_) => return Err(malformed("the host in the target and the header Host differ")),
        }
    }
    Ok(found.unwrap_or(HostOf::Service))
}

fn malformed(what: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, format!("the request cannot be forwarded: {what}"))
}

/// Answers a request for a port.
async fn pass(service: &Service, request: Request, id: &SandboxId, port: u16) -> Response {
    let requester = Requester::of(&request);
    match carry(service, request, id, port, &requester).await {
        Ok(response) => {
            service.gate.metrics.ports.answered(response.status().as_u16());
            response
        }
        Err(error) => {
            let ErrorSummary { code, cause, limit, limit_value } = ErrorSummary::of(&error);
            tracing::debug!(
                target: "sandboxd::relay", sandbox = %id, port, code = code.as_str(), cause, limit, limit_value,
                request_id = &*requester.id.0, "a request through a port failed"
            );
            refuse(service, &requester, &error)
        }
    }
}

fn refuse(service: &Service, requester: &Requester, error: &ApiError) -> Response {
    service.gate.metrics.ports.refused(error.code.as_str());
    requester.refuse(error)
}

async fn carry(
    service: &Service,
    request: Request,
    id: &SandboxId,
    port: u16,
    requester: &Requester,
) -> Result<Response, ApiError> {
    if request.method() == Method::CONNECT {
        return Err(malformed("CONNECT is not supported: this service is not a proxy"));
    }
    let exposure = service.engine.exposure(id, port).map_err(|error| of_entry(error, port))?;
    let forwarded = Forwarded::of(&request, service);
    let (mut parts, body) = request.into_parts();
    if let Access::Redirect(response) =
        access::authorize(service, &exposure, &mut parts, &forwarded, requester).await?
    {
        return Ok(response);
    }
    forward(service, exposure, Request::from_parts(parts, body), &forwarded).await
}

/// Forwards an authorized request.
async fn forward(
    service: &Service,
    exposure: Exposure,
    request: Request,
    forwarded: &Forwarded,
) -> Result<Response, ApiError> {
    let (id, port) = (&exposure.record.id, exposure.port.port);
    let (parts, body) = request.into_parts();
    let port_permit = service.ports.permit(&exposure.record.account, id).map_err(of_full_ports)?;
    let (tunnel, permit) =
        interpreter::connect_port(&service.engine, &exposure).await.map_err(|error| of_entry(error, port))?;
    let held = (permit, port_permit, service.gate.metrics.ports.opened());
    let connection = ProgramConnection::new(
        tunnel,
        held,
        (&service.engine, exposure),
        service.ports.idle(),
        service.stopping.clone(),
    );
    if let Some(pace) = parts.extensions.get::<Pace>() {
        // The connection to the program has an idle timeout for both directions.
        pace.take_time();
    }
    let upgrades =
        parts.version == Version::HTTP_11 && body.is_end_stream() && heads::asks_for_websocket(&parts);
    let is_head = parts.method == Method::HEAD;
    let request = heads::to_program(parts, body, forwarded, upgrades);
    let answer = exchange::exchange(request, connection).await?;
    match (answer.head.status, upgrades) {
        (StatusCode::SWITCHING_PROTOCOLS, true) => upgrade::switch(answer).await,
        (StatusCode::SWITCHING_PROTOCOLS, false) => {
            Err(exchange::invalid_response("it switched protocols without a request"))
        }
        _ => {
            let (head, body) = answer.into_body();
            let streams = head.headers.get(CONTENT_TYPE).is_some_and(is_endless);
            if streams {
                body.state.ends_at_stop();
            }
            Ok(heads::to_client(head, is_head).map(|()| Body::new(body)))
        }
    }
}

/// An event stream has no end that a stopping daemon could wait for.
fn is_endless(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"text/event-stream")
}

/// For the parts of this crate.
type Id = RequestId;
