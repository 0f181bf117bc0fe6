//! The control plane: creates, lists, changes and removes sandboxes.
//!
//! ```text
//! key (401) -> route (404, 405, 501) -> scope (403) -> rate limit, quota (429) -> handler
//! ```
//!
//! It shows only sandboxes that were created here. Calls without a counterpart in this service get 501.

mod body;
mod changes;
mod create;
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

use api::SandboxId;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode, request};
use axum::response::Response;
use rules::{Charge, KeyCharge, Scope};
use store::SandboxRecord;

use crate::error::E2bError;
use crate::services::Caller;
use crate::{E2bApi, has_options};
use route::Route;

pub use route::owns_path;
pub use templates::PendingBuilds;

const KEY: &str = "x-api-key";

/// One authorized request.
struct Call<'a> {
    api: &'a E2bApi,
    caller: Caller,
    query: Option<String>,
    headers: HeaderMap,
    /// The host that the client knows the service by, with its port.
    authority: Option<String>,
}

pub async fn answer(api: &E2bApi, request: Request) -> Result<Response, E2bError> {
    if templates::is_upload(request.method(), request.headers())
        && let Some((id, hash)) = route::upload(request.uri().path())
    {
        let (parts, body) = request.into_parts();
        return templates::upload(api, &id, &hash, &parts, body).await;
    }
    let caller = authenticate(api, request.headers()).await?;
    let route = route::find(request.method(), request.uri().path())?;
    let (scope, charge) = access(&route);
    if !caller.scopes.allows(scope) {
        let message = format!("the key has the scopes {}; this request needs '{scope}'", caller.scopes);
        return Err(E2bError::new(StatusCode::FORBIDDEN, message));
    }
    api.services.count(&caller, Charge::Key(charge))?;
    let permit = api.services.enter(&caller.account, request.headers())?;
    let (parts, body) = request.into_parts();
    let query = parts.uri.query().map(str::to_owned);
    let authority = authority(&parts);
    let call = Call { api, caller, query, headers: parts.headers, authority };
    let response = dispatch(&call, route, body).await?;
    Ok(permit(response))
}

async fn dispatch(call: &Call<'_>, route: Route, body: Body) -> Result<Response, E2bError> {
    match route {
        Route::Create => create::create(call, body).await,
        Route::List => list::list(call),
        Route::ListRunning => list::running(call),
        Route::Alias(name) => source::alias(call, &name).await,
        Route::Get(id) => call.get(&id),
        Route::Kill(id) => changes::kill(call, &id).await,
        Route::Pause(id) => changes::pause(call, &id, body).await,
        Route::Connect(id) => changes::connect(call, &id, body).await,
        Route::Resume(id) => changes::resume(call, &id, body).await,
        Route::Timeout(id) => changes::timeout(call, &id, body).await,
        Route::Refresh(id) => changes::refresh(call, &id, body).await,
        Route::Network(id) => network::replace(call, &id, body).await,
        Route::Metrics(id) => metrics::metrics(call, &id).await,
        Route::LatestMetrics => metrics::latest(call).await,
        Route::Logs(id) => logs::entries(call, &id).await,
        Route::LogLines(id) => logs::lines(call, &id).await,
        Route::Fork(id) => fork::fork(call, &id, body).await,
        Route::TakeSnapshot(id) => snapshots::take(call, &id, body).await,
        Route::ListSnapshots => snapshots::list(call),
        Route::DeleteTemplate(name) => templates::delete(call, &name).await,
        Route::ListTemplates => templates::list(call),
        Route::PageTemplates => templates::list_page(call),
        Route::GetTemplate(name) => templates::get(call, &name),
        Route::UpdateTemplate(name) => templates::update(call, &name, body).await,
        Route::UpdateTemplateSilently(name) => templates::update_silently(call, &name, body).await,
        Route::RequestBuild => templates::request(call, body).await,
        Route::UploadLink(id, hash) => templates::upload_link(call, &id, &hash),
        Route::StartBuild(id, build) => templates::start(call, &id, &build, body).await,
        Route::BuildStatus(id, build) => templates::status(call, &id, &build).await,
        Route::AssignTags => templates::assign_tags(call, body).await,
        Route::RemoveTags => templates::remove_tags(call, body).await,
        Route::ListTags(name) => templates::list_tags(call, &name),
    }
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

async fn authenticate(api: &E2bApi, headers: &HeaderMap) -> Result<Caller, E2bError> {
    let refused = |message: &str| E2bError::new(StatusCode::UNAUTHORIZED, message);
    let mut keys = headers.get_all(KEY).iter();
    let key = keys.next().ok_or_else(|| refused("header X-API-KEY is missing; set E2B_API_KEY"))?;
    let key = key.to_str().ok().filter(|_| keys.next().is_none());
    let invalid =
        || refused("the API key is not valid: it may be mistyped, revoked, expired or of another service");
    api.services.authenticate(key.ok_or_else(invalid)?).await.ok_or_else(invalid)
}

fn access(route: &Route) -> (Scope, KeyCharge) {
    match route {
        Route::Create | Route::Fork(_) | Route::RequestBuild => (Scope::Write, KeyCharge::Create),
        // Counts as a read, but allows an upload.
        Route::UploadLink(..) => (Scope::Write, KeyCharge::Read),
        Route::List
        | Route::ListRunning
        | Route::ListSnapshots
        | Route::ListTemplates
        | Route::PageTemplates
        | Route::GetTemplate(_)
        | Route::Alias(_)
        | Route::Get(_)
        | Route::Logs(_)
        | Route::LogLines(_)
        | Route::BuildStatus(..)
        | Route::ListTags(_)
        | Route::Metrics(_)
        | Route::LatestMetrics => (Scope::Read, KeyCharge::Read),
        Route::Kill(_) => (Scope::Write, KeyCharge::Terminate),
        Route::Pause(_)
        | Route::Connect(_)
        | Route::Resume(_)
        | Route::Timeout(_)
        | Route::Refresh(_)
        | Route::TakeSnapshot(_)
        | Route::DeleteTemplate(_)
        | Route::UpdateTemplate(_)
        | Route::UpdateTemplateSilently(_)
        | Route::StartBuild(..)
        | Route::AssignTags
        | Route::RemoveTags
        | Route::Network(_) => (Scope::Write, KeyCharge::Write),
    }
}

impl Call<'_> {
    /// A sandbox of the caller that was created through this API.
    fn find(&self, id: &SandboxId) -> Result<Arc<SandboxRecord>, E2bError> {
        let record = self.api.engine.record(id);
        let own =
            record.filter(|record| record.account == *self.caller.account && has_options(&record.config));
        own.ok_or_else(|| E2bError::no_sandbox(&id.compact()))
    }

    /// Whether a snapshot or a fork of the sandbox can have its processes.
    fn can_store_processes(&self, id: &SandboxId) -> bool {
        let isolation = self.api.engine.record(id).map(|record| record.config.isolation);
        isolation.is_some_and(|isolation| self.api.engine.can_store_processes(isolation))
    }

    fn get(&self, id: &SandboxId) -> Result<Response, E2bError> {
        let record = self.find(id)?;
        Ok(view::json(StatusCode::OK, &view::detail(self.api, &self.caller, &record)))
    }

    fn sandbox<'a>(&'a self, id: &'a SandboxId) -> engine::SandboxHandle<'a> {
        self.api.engine.sandbox(&self.caller.account, id)
    }

    /// The response for an error of an operation on a sandbox.
    fn failed(&self, id: &SandboxId, error: engine::EngineError) -> E2bError {
        match error {
            engine::EngineError::Sandbox(
                engine::SandboxError::NotFound { .. }
                | engine::SandboxError::Refused(rules::OperationRefusal::NotFound),
            ) => E2bError::no_sandbox(&id.compact()),
            error => self.api.services.error(error),
        }
    }
}
