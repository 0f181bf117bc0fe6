//! Mounts the E2B-compatible API: decides by host name which of its parts a request is for. Called by `relay`, before the native API.
//!
//! ```text
//! api.DOMAIN, or a path of that API on the service itself            -> control plane
//! 49983-ID.DOMAIN                                                    -> files and processes
//! PORT-ID.DOMAIN of a sandbox that was created through that API      -> program in the sandbox
//! sandbox.DOMAIN, localhost or an address, with E2b-Sandbox-Id       -> one of the two, by E2b-Sandbox-Port
//! ```

use std::sync::Arc;

use admission::endpoint::Conflict;
use api::SandboxId;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use e2b::{E2bApi, E2bError, ENVD_PORT};
use rules::{HostOf, ReservedName};
use service::Service;
use store::SandboxRecord;

const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";

/// The mounted API.
pub struct E2b {
    pub api: Arc<E2bApi>,
    service: Arc<Service>,
}

/// What a request is for.
pub enum Target {
    Control,
    Envd(SandboxId),
    Port(SandboxId, u16),
    Refused(E2bError),
}

impl E2b {
    /// Fails if two of its endpoints contradict each other.
    pub fn new(
        service: &Arc<Service>,
        settings: e2b::Settings,
        secret: &[u8; 32],
    ) -> Result<Arc<Self>, Conflict> {
        let api = E2bApi::new(Arc::clone(service), settings, secret)?;
        Ok(Arc::new(Self { api, service: Arc::clone(service) }))
    }

    /// What the request is for; `None` if it is not for this API.
    pub fn target(&self, host: &HostOf, request: &Request) -> Option<Target> {
        match host {
            HostOf::Reserved(ReservedName::Api) => Some(Target::Control),
            HostOf::Reserved(ReservedName::Sandbox) => Some(by_headers(request.headers())),
            HostOf::Service if request.headers().contains_key(SANDBOX_ID) && is_local(request) => {
                Some(by_headers(request.headers()))
            }
            HostOf::Service if E2bApi::owns_path(request.uri().path()) => Some(Target::Control),
            HostOf::Service if is_signed_file(request) => Some(Target::Refused(unnamed_sandbox(request))),
            HostOf::Port(id, port) => self.port(id, *port, request),
            HostOf::Service | HostOf::UnknownName => None,
        }
    }

    /// Ports of sandboxes of the native API, and of unknown ones in the native form of names, belong to the native API. So do ports
    /// that were exposed there: a private one must not be open to everybody.
    fn port(&self, id: &SandboxId, port: u16, request: &Request) -> Option<Target> {
        let is_exposed = |record: &SandboxRecord| record.ports.iter().any(|exposed| exposed.port == port);
        let is_ours = match self.service.engine.record(id) {
            Some(record) if port != ENVD_PORT && is_exposed(&record) => false,
            Some(record) => e2b::has_options(&record.config),
            None => host_text(request).is_some_and(|host| !host.to_ascii_lowercase().contains("-sb-")),
        };
        is_ours.then(|| at_port(id.clone(), port))
    }

    /// Answers a request to the control plane, or for files and processes.
    pub async fn answer(&self, target: Target, request: Request) -> Response {
        match target {
            Target::Control => self.api.control(request).await,
            Target::Envd(sandbox) => self.api.envd(sandbox, request).await,
            // Ports go through the relay.
            Target::Port(sandbox, _) => gone(&sandbox),
            Target::Refused(error) => self.api.refuse(error, &request),
        }
    }
}

fn at_port(id: SandboxId, port: u16) -> Target {
    if port == ENVD_PORT { Target::Envd(id) } else { Target::Port(id, port) }
}

/// The sandbox and port that the headers name.
fn by_headers(headers: &HeaderMap) -> Target {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let id = text(SANDBOX_ID).and_then(|id| id.parse().ok().or_else(|| SandboxId::from_host_name(id)));
    let port = text(SANDBOX_PORT).map_or(Some(ENVD_PORT), |port| port.parse().ok().filter(|port| *port != 0));
    match (id, port) {
        (Some(id), Some(port)) => at_port(id, port),
        (None, _) => {
            Target::Refused(E2bError::invalid("header E2b-Sandbox-Id is missing or is no sandbox id"))
        }
        (_, None) => Target::Refused(E2bError::invalid("header E2b-Sandbox-Port is no port")),
    }
}

fn host_text(request: &Request) -> Option<String> {
    let authority = request.uri().authority().cloned();
    let header = || request.headers().get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    authority.or_else(header).map(|authority| authority.host().to_owned())
}

/// Whether the host is `localhost` or an address. Elsewhere the host alone names the sandbox: a page of another host must not choose it
/// by a header.
fn is_local(request: &Request) -> bool {
    let Some(host) = host_text(request) else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse::<std::net::IpAddr>().is_ok()
}

/// Whether the URL is one that clients sign for files. With `E2B_SANDBOX_URL` its host is the service, and nothing in it names the sandbox.
fn is_signed_file(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.uri().path() == "/files" && query.split('&').any(|pair| pair.starts_with("signature="))
}

/// The refusal of such a URL. The signature cannot name the sandbox, because it is a hash.
fn unnamed_sandbox(request: &Request) -> E2bError {
    let header = if is_local(request) { "send the header 'E2b-Sandbox-Id: ID', or " } else { "" };
    let message = format!(
        "this signed URL names no sandbox; {header}sign it in a program without E2B_SANDBOX_URL, so that its host is {ENVD_PORT}-ID.DOMAIN"
    );
    E2bError::new(StatusCode::UNAUTHORIZED, message)
}

/// The response for a sandbox that is not running. Their clients know the text.
pub fn gone(id: &SandboxId) -> Response {
    refuse_port(StatusCode::BAD_GATEWAY, id, "The sandbox was not found", None)
}

/// The response for a port without a program.
pub fn port_closed(id: &SandboxId, port: u16) -> Response {
    let message = "The sandbox is running but port is not open";
    refuse_port(StatusCode::BAD_GATEWAY, id, message, Some(port))
}

/// The response for a port that needs the traffic token.
pub fn port_forbidden(id: &SandboxId) -> Response {
    let message = "the port needs the header e2b-traffic-access-token";
    refuse_port(StatusCode::FORBIDDEN, id, message, None)
}

fn refuse_port(status: StatusCode, id: &SandboxId, message: &str, port: Option<u16>) -> Response {
    let mut body =
        serde_json::json!({ "sandboxId": id.compact(), "message": message, "code": status.as_u16() });
    if let Some(port) = port {
        body["port"] = port.into();
    }
    (
        status,
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store")],
        body.to_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests;
