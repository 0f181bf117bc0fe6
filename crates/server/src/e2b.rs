//! Mounts the E2B-compatible API: decides by host name which of its parts a request is for, and gives it the keys, limits and images of
//! the service. Called by `relay`, before the native API.
//!
//! ```text
//! api.DOMAIN, or a path of that API on the service itself            -> control plane
//! 49983-ID.DOMAIN                                                    -> files and processes
//! PORT-ID.DOMAIN of a sandbox that was created through that API      -> program in the sandbox
//! sandbox.DOMAIN, localhost or an address, with E2b-Sandbox-Id       -> one of the two, by E2b-Sandbox-Port
//! ```

mod create_once;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use admission::error::{ApiError, of_quota, rate_limited};
use admission::in_flight;
use admission::keyring;
use admission::limiter::Refused;
use admission::memory::GrowingBody;
use admission::output_memory::OutputReservation;
use admission::record::Record;
use admission::request_id::{self, RequestId};
use anyhow::Result;
use api::{ErrorCode, SandboxId};
use async_trait::async_trait;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use e2b::{
    BodyBuffer, Caller, Creation, E2bApi, E2bError, ENVD_PORT, HostServices, ResponseMemory, Template,
};
use engine::EngineError;
use listen::Pace;
use rules::{Charge, HostOf, KeyLimits, ReservedName};
use service::Service;
use service::bases::bases;
use service::error::{OperationKind, of_builder, of_engine};
use service::images::{self, PullWait, find_image};
use service::ports::read_or_create_secret;
use store::{EventFilter, EventListing, EventPage, SandboxRecord};

use crate::config::Config;

/// The call whose request is an open stream of input.
const STREAM_INPUT: &str = "/process.Process/StreamInput";
const SECRET: &str = "e2b.secret";
const API_KEY: &str = "x-api-key";
const SANDBOX_ID: &str = "e2b-sandbox-id";
const SANDBOX_PORT: &str = "e2b-sandbox-port";
/// A create waits this long for its image: some clients give up after 60 s, and do not repeat a create that got 503.
const PULL_TIMEOUT: Duration = Duration::from_secs(50);

/// The mounted API.
pub struct E2b {
    pub api: E2bApi,
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
    /// `None` if the operator did not enable it.
    pub fn open(config: &Config, service: &Arc<Service>) -> Result<Option<Arc<Self>>> {
        if !config.e2b.enabled {
            return Ok(None);
        }
        let secret = read_or_create_secret(&config.data_dir, SECRET)?;
        Ok(Some(Arc::new(Self::new(config, service, &secret))))
    }

    pub fn new(config: &Config, service: &Arc<Service>, secret: &[u8; 32]) -> Self {
        let settings = e2b::Settings {
            templates: templates(config),
            public_ports: config.e2b.public_ports,
            domain: service.ports.public_domain(),
            scheme: service.ports.scheme(),
            isolation: Arc::clone(&service.isolation),
        };
        let services = Arc::new(Services { service: Arc::clone(service) });
        let api = E2bApi::new(service.engine.clone(), service.builder.clone(), services, settings, secret);
        Self { api, service: Arc::clone(service) }
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
        let id = RequestId::of(request.headers());
        let is_head = request.method() == Method::HEAD;
        let is_envd = matches!(target, Target::Envd(_));
        let (route, sandbox) = match &target {
            Target::Control => ("e2b control plane", None),
            Target::Envd(sandbox) | Target::Port(sandbox, _) => ("e2b envd", Some(sandbox.clone())),
            Target::Refused(_) => ("e2b", None),
        };
        // Dropped without a response, it records that the client disconnected.
        let mut record = Record::e2b(&self.service.gate, &id, route, sandbox, &request);
        let key = request.headers().get(API_KEY).cloned();
        if request.uri().path() == STREAM_INPUT
            && is_envd
            && let Some(pace) = request.extensions().get::<Pace>()
        {
            // The client sends when its user types.
            pace.take_time();
        }
        let mut response = match target {
            Target::Control => self.api.control(request).await,
            Target::Envd(sandbox) => self.api.envd(sandbox, request).await,
            // Ports go through the relay.
            Target::Port(sandbox, _) => gone(&sandbox),
            Target::Refused(error) => error.into_response(),
        };
        response.headers_mut().insert(request_id::HEADER, id.header_value());
        if is_head {
            *response.body_mut() = axum::body::Body::empty();
        }
        let code_of: fn(StatusCode) -> Option<ErrorCode> =
            if is_envd { code_of_envd } else { code_of_control };
        let native_code = response.extensions().get::<ErrorCode>().copied();
        let code = native_code.or_else(|| code_of(response.status()));
        self.count_refusal(code);
        if code == Some(ErrorCode::Unauthorized) {
            let key = key.as_ref().and_then(|key| key.to_str().ok());
            record.ended_key = key.and_then(|key| self.service.gate.keyring.ended(key));
        }
        record.answered_as_expected(response.status(), code);
        response
    }

    /// Counts a request without a valid key or token, or with a key that lacks the scope. What else is refused is counted where it is
    /// refused.
    fn count_refusal(&self, code: Option<ErrorCode>) {
        match code {
            Some(ErrorCode::Unauthorized) => self.service.gate.metrics.refused("unauthorized"),
            Some(ErrorCode::Forbidden) => self.service.gate.metrics.refused("forbidden"),
            _ => {}
        }
    }
}

/// The code for the log of an error of the control plane itself, whose bodies have a status only.
fn code_of_control(status: StatusCode) -> Option<ErrorCode> {
    match status {
        StatusCode::UNAUTHORIZED => Some(ErrorCode::Unauthorized),
        StatusCode::FORBIDDEN => Some(ErrorCode::Forbidden),
        StatusCode::NOT_FOUND => Some(ErrorCode::NotFound),
        StatusCode::METHOD_NOT_ALLOWED => Some(ErrorCode::MethodNotAllowed),
        StatusCode::CONFLICT => Some(ErrorCode::InvalidState),
        StatusCode::TOO_MANY_REQUESTS => Some(ErrorCode::RateLimited),
        StatusCode::INTERNAL_SERVER_ERROR => Some(ErrorCode::InternalError),
        StatusCode::SERVICE_UNAVAILABLE => Some(ErrorCode::ResourceExhausted),
        status if status.is_client_error() => Some(ErrorCode::InvalidRequest),
        _ => None,
    }
}

/// As [`code_of_control`], for files and processes, whose other errors have a code of their protocol in the body.
fn code_of_envd(status: StatusCode) -> Option<ErrorCode> {
    (status == StatusCode::UNAUTHORIZED).then_some(ErrorCode::Unauthorized)
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).map(|value| value.as_bytes());
    kind.is_some_and(|kind| kind.starts_with(b"application/connect+"))
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

/// An error of the native API in the form of this one.
pub fn of_native(error: &ApiError) -> E2bError {
    let (status, message, is_temporary) = (error.status(), error.message.clone(), error.is_temporary());
    let shown = E2bError { is_temporary, native_code: Some(error.code), ..E2bError::new(status, message) };
    match error.retry_after_s {
        Some(seconds) => shown.retry_after(seconds),
        None => shown,
    }
}

/// The configured templates, and the default ones.
fn templates(config: &Config) -> BTreeMap<String, Template> {
    let of_image =
        |image: &str| Template { image: image.to_owned(), cpu: None, memory_mb: None, disk_mb: None };
    let mut templates = BTreeMap::from([
        ("base".to_owned(), of_image("e2b-base")),
        ("code-interpreter-v1".to_owned(), of_image("code-interpreter")),
    ]);
    for (name, own) in &config.e2b.templates {
        let (cpu, memory_mb, disk_mb) = (own.cpu, own.memory_mb, own.disk_mb);
        templates.insert(name.clone(), Template { image: own.image.clone(), cpu, memory_mb, disk_mb });
    }
    templates
}

/// The parts of the service that the API uses.
struct Services {
    service: Arc<Service>,
}

impl Services {
    fn native_caller(&self, caller: &Caller) -> keyring::Caller {
        let Caller { account, key_id, scopes } = caller.clone();
        let limits = self.limits_of(&key_id);
        keyring::Caller { account, key_id, scopes, limits }
    }

    /// The rate limits of a key. One that was revoked a moment ago is refused by the next request.
    fn limits_of(&self, key_id: &str) -> KeyLimits {
        self.service.gate.keyring.of_id(key_id).map_or_else(KeyLimits::default, |key| key.limits)
    }

    fn rate_limited(&self, refused: &Refused) -> E2bError {
        self.service.gate.metrics.refused("rate_limited");
        of_native(&rate_limited(refused))
    }
}

/// The body of a request in the memory of the native API.
struct Buffer(GrowingBody);

#[async_trait]
impl BodyBuffer for Buffer {
    fn received(&self) -> usize {
        self.0.len()
    }

    async fn add(&mut self, data: &[u8]) -> Result<(), E2bError> {
        self.0.add(data).await.map_err(|error| of_native(&error))
    }

    fn done(self: Box<Self>) -> Bytes {
        self.0.done()
    }
}

/// The memory of a response in that of the native API.
struct Share(OutputReservation);

#[async_trait]
impl ResponseMemory for Share {
    async fn cover(&mut self, bytes: usize) -> Result<(), E2bError> {
        self.0.cover(bytes).await.map_err(|error| of_native(&error))
    }
}

fn shown_caller(caller: keyring::Caller) -> Caller {
    let keyring::Caller { account, key_id, scopes, .. } = caller;
    Caller { account, key_id, scopes }
}

#[async_trait]
impl HostServices for Services {
    async fn authenticate(&self, key: &str) -> Option<Caller> {
        self.service.gate.authenticate(key).await.ok().map(shown_caller)
    }

    fn keys(&self, account: &str) -> Vec<Caller> {
        self.service.gate.keyring.of_account(account).into_iter().map(shown_caller).collect()
    }

    fn count(&self, caller: &Caller, charge: Charge) -> Result<(), E2bError> {
        let counted = self.service.gate.limiter.count(&self.native_caller(caller), charge, None);
        counted.map(|_| ()).map_err(|refused| self.rate_limited(&refused))
    }

    fn count_execution(
        &self,
        account: &Arc<str>,
        key_id: Option<&str>,
        sandbox: &SandboxId,
    ) -> Result<(), E2bError> {
        let limits = key_id.map_or_else(KeyLimits::default, |key_id| self.limits_of(key_id));
        let counted = self.service.gate.limiter.count_execution(account, limits, sandbox);
        counted.map_err(|refused| self.rate_limited(&refused))
    }

    fn body_buffer(&self, account: &Arc<str>, max_bytes: usize) -> Box<dyn BodyBuffer> {
        Box::new(Buffer(self.service.gate.request_memory.body(account, max_bytes)))
    }

    fn response_memory(&self, account: &Arc<str>) -> Box<dyn ResponseMemory> {
        Box::new(Share(self.service.gate.output_memory.response(account)))
    }

    fn enter(&self, account: &Arc<str>, headers: &HeaderMap) -> Result<e2b::Permit, E2bError> {
        let kind = if is_stream(headers) { in_flight::Kind::Stream } else { in_flight::Kind::Request };
        let permit = self.service.gate.in_flight.enter(account, kind).map_err(|refused| {
            self.service.gate.metrics.refused("quota_exceeded");
            of_native(&of_quota(&refused))
        })?;
        let (memory, account) = (Arc::clone(&self.service.gate.output_memory), Arc::clone(account));
        Ok(Box::new(move |response| {
            let counted = memory.count(&account, response);
            permit.attach(counted.unwrap_or_else(|error| of_native(&error).into_response()))
        }))
    }

    async fn image(&self, account: &str, name: &str) -> Result<engine::Template, E2bError> {
        let wait = PullWait::of_request(PULL_TIMEOUT);
        let found = find_image(&self.service, account, name, wait).await;
        found.map(|image| images::template(&image)).map_err(|error| match error.code {
            ErrorCode::InvalidConfig => {
                let message = format!("template {} not found: {}", rules::quoted(name), error.message);
                let shown = E2bError::not_found(message);
                E2bError { is_temporary: error.is_temporary(), native_code: Some(error.code), ..shown }
            }
            _ => of_native(&error),
        })
    }

    fn is_catalogue_image(&self, name: &str) -> bool {
        self.service.images.is_in_catalogue(name)
    }

    async fn events(&self, filter: &EventFilter, page: EventPage) -> Result<EventListing, E2bError> {
        let listed = self.service.store.list_events(filter, page).await;
        listed.map_err(|error| self.error(error.into()))
    }

    async fn create_once(
        &self,
        caller: &Caller,
        endpoint: &str,
        (headers, body): (&HeaderMap, Bytes),
        creation: Creation,
    ) -> Result<Response, E2bError> {
        let native = self.native_caller(caller);
        let created = create_once::run(&self.service, &native, endpoint, (headers, body), creation).await;
        let response = created.map_err(|error| of_native(&error))?;
        // A repeated error is the native one.
        match response.extensions().get::<ApiError>() {
            Some(error) => Err(of_native(error)),
            None => Ok(response),
        }
    }

    fn bases(&self) -> Arc<dyn builder::Bases> {
        bases(&self.service)
    }

    fn builder_error(&self, error: builder::BuilderError) -> E2bError {
        let error = of_builder(error);
        if let Some(cause) = error.cause_text() {
            tracing::error!(target: "sandboxd::e2b", cause, "an operation failed");
        }
        of_native(&error)
    }

    fn error(&self, error: EngineError) -> E2bError {
        let error = of_engine(error, None, OperationKind::Other);
        if let Some(cause) = error.cause_text() {
            tracing::error!(target: "sandboxd::e2b", cause, "an operation failed");
        }
        of_native(&error)
    }
}

#[cfg(test)]
mod tests;
