//! Files and processes of one sandbox, as their in-sandbox service `envd` serves them on port 49983.
//!
//! ```text
//! sandbox (502) ──> GET /health
//!              ├──> /files ──> access token or signature (401) ──> files
//!              └──> POST /process.Process/…, /filesystem.Filesystem/… ──> access token (401) ──> connect ──> process, filesystem
//! ```
//!
//! Nothing here runs inside the sandbox: the services call the engine, and the agent acts on behalf of the user. Errors are
//! [`failure::Failure`]s; no failure leaves anything behind except what the sandbox itself has done.

mod auth;
mod call;
mod connect;
mod failure;
mod files;
mod filesystem;
mod process;
mod proto_json;
mod query;
mod signature;
mod target;

use std::sync::Arc;

use api::{SandboxId, SandboxState};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, StatusCode, header, request};
use axum::response::{IntoResponse as _, Response};

use auth::{Grant, TokenCheck};
use call::Call;
use connect::{CallKind, call_options};
use failure::{Failure, http_error, json_response};
pub use filesystem::Watchers;
use target::Target;

use crate::error::E2bError;
use crate::run_defaults::RunDefaults;
use crate::{E2bApi, E2bOptions};

/// A method of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Procedure {
    Process(process::Unary),
    Start,
    Connect,
    StreamInput,
    Filesystem(filesystem::Unary),
    WatchDir,
}

impl Procedure {
    fn of(path: &str) -> Option<Self> {
        use {filesystem::Unary as Files, process::Unary as Processes};
        Some(match path {
            "/process.Process/Start" => Self::Start,
            "/process.Process/Connect" => Self::Connect,
            "/process.Process/StreamInput" => Self::StreamInput,
            "/process.Process/List" => Self::Process(Processes::List),
            "/process.Process/SendInput" => Self::Process(Processes::SendInput),
            "/process.Process/CloseStdin" => Self::Process(Processes::CloseStdin),
            "/process.Process/SendSignal" => Self::Process(Processes::SendSignal),
            "/process.Process/Update" => Self::Process(Processes::Update),
            "/filesystem.Filesystem/ListDir" => Self::Filesystem(Files::ListDir),
            "/filesystem.Filesystem/Stat" => Self::Filesystem(Files::Stat),
            "/filesystem.Filesystem/MakeDir" => Self::Filesystem(Files::MakeDir),
            "/filesystem.Filesystem/Move" => Self::Filesystem(Files::Move),
            "/filesystem.Filesystem/Remove" => Self::Filesystem(Files::Remove),
            "/filesystem.Filesystem/CreateWatcher" => Self::Filesystem(Files::CreateWatcher),
            "/filesystem.Filesystem/GetWatcherEvents" => Self::Filesystem(Files::GetWatcherEvents),
            "/filesystem.Filesystem/RemoveWatcher" => Self::Filesystem(Files::RemoveWatcher),
            "/filesystem.Filesystem/WatchDir" => Self::WatchDir,
            _ => return None,
        })
    }

    fn kind(self) -> CallKind {
        match self {
            Self::Process(_) | Self::Filesystem(_) => CallKind::Unary,
            Self::Start | Self::Connect | Self::StreamInput | Self::WatchDir => CallKind::Stream,
        }
    }

    /// The content type of requests.
    fn media_type(self) -> &'static str {
        match self.kind() {
            CallKind::Unary => "application/json",
            CallKind::Stream => "application/connect+json",
        }
    }
}

/// Answers a request to the port 49983 of a sandbox. A paused sandbox is resumed if its options allow that.
pub async fn answer(api: &E2bApi, id: SandboxId, request: Request) -> Result<Response, E2bError> {
    let record = api.engine.record(&id);
    let Some((record, own)) =
        record.as_ref().and_then(|record| Some((record, E2bOptions::of(&record.config)?)))
    else {
        return Ok(failure::not_running(&id.compact()));
    };
    let target = Target {
        engine: api.engine.clone(),
        services: Arc::clone(&api.services),
        account: record.account.as_str().into(),
        shown_id: id.compact(),
        tokens: own.secure.then(|| api.tokens.clone()),
        defaults: RunDefaults::of_sandbox(&own),
        id,
    };
    let (parts, body) = request.into_parts();
    if record.state() == SandboxState::Paused && is_authorized(&target, &parts) {
        if !record.config.auto_resume {
            return Ok(failure::not_running(&target.shown_id));
        }
        if let Err(error) = target.sandbox().resume().await {
            // Another request may have resumed it.
            tracing::debug!(%error, "a request did not resume its sandbox");
        }
    }
    Ok(route(target, &api.watchers, parts, body).await)
}

/// Whether a request may resume the sandbox. The state of health is open to everybody.
fn is_authorized(target: &Target, parts: &request::Parts) -> bool {
    match parts.uri.path() {
        "/health" => true,
        "/files" => files::is_authorized(target, parts),
        _ => matches!(target.check_token(&parts.headers), TokenCheck::Valid(_)),
    }
}

async fn route(target: Target, watchers: &Watchers, parts: request::Parts, body: Body) -> Response {
    match parts.uri.path() {
        "/health" if matches!(parts.method, Method::GET | Method::HEAD) => health(&target).await,
        "/files" => files::answer(&target, &parts, body).await,
        path => match Procedure::of(path) {
            Some(procedure) => rpc(procedure, target, watchers, &parts, body).await,
            None => http_error(StatusCode::NOT_FOUND, &format!("there is no {}", rules::quoted(path))),
        },
    }
}

async fn health(target: &Target) -> Response {
    match target.exists().await {
        true => StatusCode::NO_CONTENT.into_response(),
        false => failure::not_running(&target.shown_id),
    }
}

async fn rpc(
    procedure: Procedure,
    target: Target,
    watchers: &Watchers,
    parts: &request::Parts,
    body: Body,
) -> Response {
    if parts.method != Method::POST {
        let mut response = http_error(StatusCode::METHOD_NOT_ALLOWED, "allowed: POST");
        response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("POST"));
        return response;
    }
    let TokenCheck::Valid(grant) = target.check_token(&parts.headers) else {
        return http_error(
            StatusCode::UNAUTHORIZED,
            "the header X-Access-Token is missing or does not match",
        );
    };
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !media_type.eq_ignore_ascii_case(procedure.media_type()) {
        let message = format!("the content type of this method is {}", procedure.media_type());
        return http_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message);
    }
    let (kind, shown_id) = (procedure.kind(), target.shown_id.clone());
    let admitted = match procedure {
        Procedure::Start => target.count_execution(&grant),
        _ => Ok(()),
    };
    let permit = match admitted.and_then(|()| target.enter(&parts.headers)) {
        Ok(permit) => permit,
        Err(failure) => return failure.rpc_response(kind, &shown_id),
    };
    let answered = dispatch(procedure, (target, grant), watchers, parts, body).await;
    permit(answered.unwrap_or_else(|failure| failure.rpc_response(kind, &shown_id)))
}

async fn dispatch(
    procedure: Procedure,
    (target, grant): (Target, Grant),
    watchers: &Watchers,
    parts: &request::Parts,
    body: Body,
) -> Result<Response, Failure> {
    let user = auth::user(&parts.headers, target.defaults.user())?;
    let options = call_options(&parts.headers, procedure.kind())?;
    let call = Call { target, user, options, body, grant };
    match procedure {
        Procedure::Process(method) => Ok(json_response(StatusCode::OK, &process::unary(call, method).await?)),
        Procedure::Filesystem(method) => filesystem::unary(call, method, watchers).await,
        Procedure::Start => process::start(call).await,
        Procedure::Connect => process::connect(call).await,
        Procedure::StreamInput => process::stream_input(call).await,
        Procedure::WatchDir => filesystem::watch(call).await,
    }
}
