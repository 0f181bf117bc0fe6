//! The control plane: creates, lists, changes and removes sandboxes.
//!
//! ```text
//! key or link (401, 403) -> call (404, 405, 501) -> scope (403) -> rate limit, quota (429) -> handler
//! ```
//!
//! [`calls`] has all of them. It shows only sandboxes that were created here. Calls without a counterpart in this service get 501.

mod body;
mod changes;
mod create;
mod create_once;
mod fork;
mod limits;
mod list;
mod logs;
mod metrics;
mod network;
mod paging;
mod query;
mod reference;
mod route;
mod snapshots;
mod source;
mod templates;
mod view;

use std::sync::Arc;

use admission::endpoint::{
    self, Access, AccessRule, Authorized, CREATE, Declaration, Door, Endpoint, Keyed, READ, RawBody,
    TERMINATE, Token, WRITE,
};
use admission::keyring::Caller;
use admission::record::Record;
use admission::request_id::RequestId;
use api::{SandboxId, TemplateId};
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, request};
use axum::response::{IntoResponse, Response};
use rules::{Charge, KeyCharge, Scope};
use store::SandboxRecord;

use crate::error::E2bError;
use crate::visit::{Part, Visit, kind_of};
use crate::{E2bApi, E2bOptions, has_options};

pub use route::owns_path;
pub use templates::PendingBuilds;

const KEY: &str = "x-api-key";
/// Counts as a read, but allows an upload.
const LINK: Keyed = Keyed { scope: Scope::Write, charge: Charge::Key(KeyCharge::Read) };
/// By the token of such a link.
const BY_LINK: Token = Token { scope: Scope::Write, charge: Some(Charge::Key(KeyCharge::Write)) };

impl Door for E2bApi {
    type Error = E2bError;
}

/// All calls. A path with `/v2` or `/v3` is that of a later generation; without one of its own it has the call of the first.
pub fn calls() -> Vec<Endpoint<E2bApi>> {
    vec![
        on(Endpoint::post("/sandboxes", CREATE), create::create),
        on(Endpoint::get("/v2/sandboxes", READ), list::list),
        on(Endpoint::get("/sandboxes", READ), list::running),
        on(Endpoint::get("/sandboxes/metrics", READ), metrics::latest),
        on(Endpoint::get("/sandboxes/{id}", READ), get),
        on(Endpoint::delete("/sandboxes/{id}", TERMINATE), changes::kill),
        on(Endpoint::post("/sandboxes/{id}/pause", WRITE), changes::pause),
        on(Endpoint::post("/sandboxes/{id}/connect", WRITE), changes::connect),
        on(Endpoint::post("/sandboxes/{id}/resume", WRITE), changes::resume),
        on(Endpoint::post("/sandboxes/{id}/timeout", WRITE), changes::timeout),
        on(Endpoint::post("/sandboxes/{id}/refreshes", WRITE), changes::refresh),
        on(Endpoint::put("/sandboxes/{id}/network", WRITE), network::replace),
        on(Endpoint::get("/sandboxes/{id}/metrics", READ), metrics::metrics),
        on(Endpoint::get("/v2/sandboxes/{id}/logs", READ), logs::entries),
        on(Endpoint::get("/sandboxes/{id}/logs", READ), logs::lines),
        on(Endpoint::post("/sandboxes/{id}/fork", CREATE), fork::fork),
        on(Endpoint::post("/sandboxes/{id}/snapshots", WRITE), snapshots::take),
        on(Endpoint::get("/snapshots", READ), snapshots::list),
        on(Endpoint::get("/v2/templates", READ), templates::list_page),
        on(Endpoint::get("/templates", READ), templates::list),
        on(Endpoint::post("/v3/templates", CREATE), templates::request),
        on(Endpoint::get("/templates/aliases/{template}", READ), source::alias),
        on(Endpoint::post("/templates/tags", WRITE), templates::assign_tags),
        on(Endpoint::delete("/templates/tags", WRITE), templates::remove_tags),
        on(Endpoint::get("/templates/{template}", READ), templates::get),
        // A snapshot too, which their clients call a template.
        on(Endpoint::delete("/templates/{template}", WRITE), templates::delete),
        on(Endpoint::patch("/v2/templates/{template}", WRITE), templates::update),
        on(Endpoint::patch("/templates/{template}", WRITE), templates::update_silently),
        on(Endpoint::get("/templates/{template}/tags", READ), templates::list_tags),
        on(Endpoint::get("/templates/{template}/files/{hash}", LINK), templates::upload_link),
        on(Endpoint::put("/templates/{template}/files/{hash}", BY_LINK), templates::upload),
        on(Endpoint::post("/v2/templates/{template}/builds/{build}", WRITE), templates::start),
        on(Endpoint::get("/templates/{template}/builds/{build}/status", READ), templates::status),
        on(Endpoint::get("/templates/{template}/builds/{build}/logs", READ), templates::build_log),
    ]
}

/// Completes the declaration of a call.
fn on<A, H, F>(declaration: Declaration<E2bApi, A>, handler: H) -> Endpoint<E2bApi>
where
    A: AccessRule,
    A::Caller: Into<Option<Caller>>,
    H: Fn(Call, Body) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response, E2bError>> + Send + 'static,
{
    let declaration: Declaration<E2bApi, A, RawBody> = declaration.raw_body("application/json", false, "");
    declaration.handler(move |call| {
        let answering = Call::of(call).map(|(call, body)| handler(call, body));
        async move {
            match answering {
                Some(answering) => answering.await,
                // Neither a key nor a link.
                None => Err(E2bError::internal()),
            }
        }
    })
}

/// One authorized request.
pub struct Call {
    api: Arc<E2bApi>,
    caller: Caller,
    query: Option<String>,
    headers: HeaderMap,
    /// The host that the client knows the service by, with its port.
    authority: Option<String>,
    path: String,
    /// The template of the path.
    template: &'static str,
}

/// Answers a request, and records it.
pub async fn answer(api: &Arc<E2bApi>, request: Request) -> Response {
    let mut visit = Visit::begin(&api.service.gate, Part::Control, None, &request);
    let request_id = visit.id.clone();
    let answered = respond(api, request, request_id, &mut visit.record).await;
    visit.end(answered.unwrap_or_else(IntoResponse::into_response))
}

async fn respond(
    api: &Arc<E2bApi>,
    request: Request,
    request_id: RequestId,
    record: &mut Record,
) -> Result<Response, E2bError> {
    let gate = &api.service.gate;
    let found = route::find(&api.calls, request.method(), request.uri().path());
    // Only links have a token instead of a key.
    let by_link = found.filter(|call| matches!(call.access, Access::Token { .. }));
    let (found, caller) = match by_link.filter(|_| !request.headers().contains_key(KEY)) {
        Some(call) => (Some(call), templates::link_holder(api, request.uri())?),
        None => {
            let caller = authenticate(api, request.headers(), record).await?;
            (found.filter(|_| by_link.is_none()), caller)
        }
    };
    record.caller = Some(caller.clone());
    let call = found.ok_or_else(|| route::refuse(request.method(), request.uri().path()))?;
    gate.admit(&caller, call.access.scope(), call.access.charge(), None).map_err(|refusal| refusal.error)?;
    let (account, kind) = (Arc::clone(&caller.account), kind_of(request.headers()));
    let authorized = Authorized { service: Arc::clone(api), caller: Some(caller), request_id, request };
    let refuse = |error| E2bError::from(error).into_response();
    Ok(gate.run(Some(&account), kind, call.call(authorized), refuse).await)
}

/// HTTP/2 has the host in the target, HTTP/1.1 in a header.
fn authority(parts: &request::Parts) -> Option<String> {
    let of_header = || parts.headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
    let authority = parts.uri.authority().cloned().or_else(of_header)?;
    Some(match authority.port_u16() {
        Some(port) => format!("{}:{port}", authority.host()),
        None => authority.host().to_owned(),
    })
}

async fn authenticate(api: &E2bApi, headers: &HeaderMap, record: &mut Record) -> Result<Caller, E2bError> {
    let refused = |message: &str| E2bError::new(StatusCode::UNAUTHORIZED, message);
    let mut keys = headers.get_all(KEY).iter();
    let key = keys.next().ok_or_else(|| refused("header X-API-KEY is missing; set E2B_API_KEY"))?;
    let key = key.to_str().ok().filter(|_| keys.next().is_none());
    let invalid =
        || refused("the API key is not valid: it may be mistyped, revoked, expired or of another service");
    let key = key.ok_or_else(invalid)?;
    api.service.gate.authenticate(key).await.map_err(|_| {
        record.ended_key = api.service.gate.keyring.ended(key);
        invalid()
    })
}

async fn get(call: Call, _: Body) -> Result<Response, E2bError> {
    let (record, own) = call.find_with_options(&call.sandbox_id()?)?;
    Ok(view::json(StatusCode::OK, &view::detail(&call.api, &call.caller, &record, &own)))
}

impl Call {
    fn of<C: Into<Option<Caller>>>(call: endpoint::Call<E2bApi, C, RawBody>) -> Option<(Self, Body)> {
        let endpoint::Call { service, caller, path, parts, body, .. } = call;
        let call = Self {
            api: service,
            caller: caller.into()?,
            query: parts.uri.query().map(str::to_owned),
            authority: authority(&parts),
            path: parts.uri.path().to_owned(),
            headers: parts.headers,
            template: path,
        };
        Some((call, body.0))
    }

    /// The part of the path in place of a parameter. Counted from the end: the version before the template may be missing.
    fn part(&self, name: &str) -> &str {
        let template = self.template.trim_matches('/').rsplit('/');
        let mut pairs = template.zip(self.path.trim_matches('/').rsplit('/'));
        let is_named =
            |part: &str| part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) == Some(name);
        pairs.find(|(part, _)| is_named(part)).map_or("", |(_, part)| part)
    }

    /// The decoded text in place of a parameter of the path.
    fn text(&self, name: &str) -> String {
        query::decoded(self.part(name))
    }

    fn sandbox_id(&self) -> Result<SandboxId, E2bError> {
        route::parse_id(self.part("id"))
    }

    fn template_id(&self) -> Result<TemplateId, E2bError> {
        route::parse_template(self.part("template"))
    }

    /// A sandbox of the caller that was created through this API.
    fn find(&self, id: &SandboxId) -> Result<Arc<SandboxRecord>, E2bError> {
        let record = self.api.service.engine.record(id);
        let own =
            record.filter(|record| record.account == *self.caller.account && has_options(&record.config));
        own.ok_or_else(|| E2bError::no_sandbox(&id.compact()))
    }

    /// The same, for what depends on the options.
    fn find_with_options(&self, id: &SandboxId) -> Result<(Arc<SandboxRecord>, E2bOptions), E2bError> {
        let record = self.find(id)?;
        let own = E2bOptions::of(&record)?.ok_or_else(|| E2bError::no_sandbox(&id.compact()))?;
        Ok((record, own))
    }

    /// Whether a snapshot or a fork of the sandbox can have its processes.
    fn can_store_processes(&self, id: &SandboxId) -> bool {
        let isolation = self.api.service.engine.record(id).map(|record| record.config.isolation);
        isolation.is_some_and(|isolation| self.api.service.engine.can_store_processes(isolation))
    }

    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> engine::SandboxHandle<'a> {
        self.api.service.engine.sandbox(&self.caller.account, id)
    }

    /// The response for an error of an operation on a sandbox.
    fn failed(&self, id: &SandboxId, error: engine::EngineError) -> E2bError {
        match error {
            engine::EngineError::Sandbox(
                engine::SandboxError::NotFound { .. }
                | engine::SandboxError::Refused(rules::OperationRefusal::NotFound),
            ) => E2bError::no_sandbox(&id.compact()),
            error => E2bError::of_engine(error),
        }
    }
}
