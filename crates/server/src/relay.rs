//! Carries requests from the hosts of exposed ports to the programs inside, and their answers back.
//!
//! [`Relay`] stands before everything else: the host of a request alone decides whether it is for a port, and then nothing of the
//! interface is between it and the program: no limit, no rate, no error body that was not asked for. In this order:
//!
//! ```text
//! host (400, 404) -> access (401, 403, 404; 303 for a browser that brought a token) -> a place (429) -> the sandbox, woken (409, 503)
//!   -> the program (502, 504) -> its answer as it comes
//! ```
//!
//! Each request has a connection to the program for itself, through the agent and never over the sandbox's network, and it is never
//! used again: no answer can come to another's request. It is driven by whoever waits for the answer, so that dropping
//! either side ends both. What comes out of a sandbox is hostile: its bytes go through hyper's client and are written anew.

mod access;
mod carried;
mod cookies;
mod exchange;
mod heads;
mod inside;
mod origin;
mod refusal;
mod switched;

use std::sync::Arc;

use api::{ErrorCode, SandboxId};
use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::uri::Authority;
use axum::http::{HeaderValue, Method, StatusCode, Version};
use axum::response::Response;
use listen::{Answer, Application, Pace};
use rules::HostOf;

use crate::error::{ApiError, crowded, nobody, of_entry};
use crate::layers::{Guarded, RequestId};
use crate::ports::Full;
use crate::service::Service;
use access::Let;
use heads::Forwarded;
use inside::Inside;
use refusal::Asker;

/// The interface, and before it what is for ports.
pub struct Relay {
    pub api: Guarded,
}

impl Application for Relay {
    fn answer(&self, request: Request) -> Answer {
        match host_of(&request, &self.api.service) {
            Ok(HostOf::Service) => self.api.answer(request),
            other => {
                let service = Arc::clone(&self.api.service);
                Box::pin(async move {
                    match other {
                        Ok(HostOf::Port(id, port)) => pass(&service, request, &id, port).await,
                        Err(refusal) => refuse(&service, &Asker::of(&request), &refusal),
                        Ok(_) => refuse(&service, &Asker::of(&request), &nobody()),
                    }
                })
            }
        }
    }
}

/// Whom a request is for. It may say so in its target and in `Host`; where one of them names a port both have to name the same.
fn host_of(request: &Request, service: &Service) -> Result<HostOf, ApiError> {
    let named = |authority: &Authority| match service.ports.host(authority.host()) {
        HostOf::Service => Ok(HostOf::Service),
        _ if authority.as_str().contains('@') => Err(malformed("a name of a user in the host")),
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
    ApiError::new(ErrorCode::InvalidRequest, format!("the request cannot be passed on: {what}"))
}

/// From a request for a port to its answer.
async fn pass(service: &Service, request: Request, id: &SandboxId, port: u16) -> Response {
    let asker = Asker::of(&request);
    match carry(service, request, id, port, &asker).await {
        Ok(response) => {
            service.metrics.ports.answered(response.status().as_u16());
            response
        }
        Err(error) => {
            tracing::debug!(
                target: "sandboxd::relay", sandbox = %id, port, code = error.code.as_str(), cause = error.cause,
                request_id = &*asker.id.0, "a request did not come through"
            );
            refuse(service, &asker, &error)
        }
    }
}

fn refuse(service: &Service, asker: &Asker, error: &ApiError) -> Response {
    service.metrics.ports.refused(error.code.as_str());
    asker.refuse(error)
}

async fn carry(
    service: &Service,
    request: Request,
    id: &SandboxId,
    port: u16,
    asker: &Asker,
) -> Result<Response, ApiError> {
    if request.method() == Method::CONNECT {
        return Err(malformed("CONNECT is for proxies, and this is none"));
    }
    let exposure = service.engine.exposure(id, port).map_err(|error| of_entry(error, port))?;
    let forwarded = Forwarded::of(&request, service);
    let (mut parts, body) = request.into_parts();
    if let Let::Redirect(response) = access::look(service, &exposure, &mut parts, &forwarded, asker).await? {
        return Ok(response);
    }
    let place = service.ports.place(&exposure.record.account, id).map_err(|full| match full {
        Full::Sandbox { most } => crowded(&format!(
            "{most} requests and connections go through the ports of this sandbox, which is the most"
        )),
        Full::Account { most } => crowded(&format!(
            "{most} requests and connections go through the ports of this account, which is the most"
        )),
        Full::Service => ApiError::new(
            ErrorCode::ResourceExhausted,
            "too much goes through ports at the moment; try again",
        ),
    })?;
    let (tunnel, permit) =
        service.engine.connect_port(&exposure).await.map_err(|error| of_entry(error, port))?;
    let held = (permit, place, service.metrics.ports.opened());
    let inside =
        Inside::new(tunnel, held, (&service.engine, exposure), service.ports.idle, service.stopping.clone());
    if let Some(pace) = parts.extensions.get::<Pace>() {
        // The guard of the connection has the time of both ways.
        pace.take_time();
    }
    let upgrades =
        parts.version == Version::HTTP_11 && body.is_end_stream() && heads::asks_for_websocket(&parts);
    let is_head = parts.method == Method::HEAD;
    let request = heads::to_program(parts, body, &forwarded, upgrades);
    let answer = exchange::exchange(request, inside).await?;
    match (answer.head.status, upgrades) {
        (StatusCode::SWITCHING_PROTOCOLS, true) => switched::switch(answer).await,
        (StatusCode::SWITCHING_PROTOCOLS, false) => {
            Err(exchange::bad_answer("it changed the protocol unasked"))
        }
        _ => {
            let (head, carried) = answer.carried();
            let streams = head.headers.get(CONTENT_TYPE).is_some_and(is_endless);
            if streams {
                carried.state.ends_at_stop();
            }
            Ok(heads::to_client(head, is_head).map(|()| Body::new(carried)))
        }
    }
}

/// A stream of events has no end that a daemon which stops could wait for.
fn is_endless(content_type: &HeaderValue) -> bool {
    content_type.as_bytes().starts_with(b"text/event-stream")
}

/// For the parts of this module.
type Id = RequestId;
