//! Files and processes of one sandbox, as their in-sandbox service `envd` serves them on port 49983.
//!
//! ```text
//! sandbox (502) ──> GET /health
//!              ├──> /files ──> access token or signature (401) ──> quota (429) ──> files
//!              └──> POST /process.Process/…, /filesystem.Filesystem/… ──> access token (401) ──> rate limit, quota (429) ──> process,
//!                   filesystem
//! ```
//!
//! A request that gets as far as its handler resumes a paused sandbox, if the options of the sandbox allow that.
//!
//! [`endpoints`] has all of them. Nothing here runs inside the sandbox: the handlers call the engine, and the agent acts on behalf of the
//! user. Errors are [`failure::Failure`]s; no failure leaves anything behind except what the sandbox itself has done.

mod auth;
mod call;
mod connect;
mod failure;
mod files;
mod filesystem;
mod process;
mod proto_json;
mod query;
mod session;
mod signature;
mod target;

use std::sync::Arc;

use admission::endpoint::{Authorized, Endpoint, Matched, Open, Token};
use admission::error::ApiError;
use admission::record::Record;
use admission::request_id::RequestId;
use api::{SandboxId, SandboxState};
use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use listen::Pace;
use rules::{Charge, SandboxCharge, Scope};

use call::EnvdCall;
use connect::CallKind;
use failure::{Failure, Form, http_error, json_response};
pub use filesystem::Watchers;
pub use session::EnvdSession;
use session::Right;
use target::Target;

use crate::run_defaults::RunDefaults;
use crate::visit::{Part, Visit, kind_of};
use crate::{E2bApi, E2bOptions};

/// The call whose request is an open stream of input.
const STREAM_INPUT: &str = "/process.Process/StreamInput";
const FILES: &str = "/files";
/// Uses a sandbox. Only starts of processes count against a rate limit.
const USE: Token = Token { scope: Scope::Execute, charge: None };
const START: Token = Token { scope: Scope::Execute, charge: Some(Charge::Sandbox(SandboxCharge::Execute)) };

/// All endpoints. The handlers of files share the watchers.
pub fn endpoints(watchers: &Arc<Watchers>) -> Vec<Endpoint<EnvdSession>> {
    use CallKind::{Stream, Unary};
    use {filesystem::Unary as Files, process::Unary as Processes};
    let process = |method| {
        move |call: EnvdCall| async move {
            Ok::<_, Failure>(json_response(StatusCode::OK, &process::unary(call, method).await?))
        }
    };
    let files = |method| {
        let watchers = Arc::clone(watchers);
        move |call: EnvdCall| {
            let watchers = Arc::clone(&watchers);
            async move { filesystem::unary(call, method, &watchers).await }
        }
    };
    vec![
        Endpoint::<EnvdSession>::get("/health", Open)
            .handler(|call| async move { Ok(health(&call.service.target).await) }),
        Endpoint::<EnvdSession>::get(FILES, USE)
            .handler(|call| async move { Ok(files::download(&call.service, &call.parts).await) }),
        Endpoint::<EnvdSession>::post(FILES, USE)
            .raw_body("", true, "")
            .handler(|call| async move { Ok(files::upload(&call.service, &call.parts, call.body.0).await) }),
        rpc("/process.Process/Start", START, Stream, process::start),
        rpc("/process.Process/Connect", USE, Stream, process::connect),
        rpc(STREAM_INPUT, USE, Stream, process::stream_input),
        rpc("/process.Process/List", USE, Unary, process(Processes::List)),
        rpc("/process.Process/SendInput", USE, Unary, process(Processes::SendInput)),
        rpc("/process.Process/CloseStdin", USE, Unary, process(Processes::CloseStdin)),
        rpc("/process.Process/SendSignal", USE, Unary, process(Processes::SendSignal)),
        rpc("/process.Process/Update", USE, Unary, process(Processes::Update)),
        rpc("/filesystem.Filesystem/ListDir", USE, Unary, files(Files::ListDir)),
        rpc("/filesystem.Filesystem/Stat", USE, Unary, files(Files::Stat)),
        rpc("/filesystem.Filesystem/MakeDir", USE, Unary, files(Files::MakeDir)),
        rpc("/filesystem.Filesystem/Move", USE, Unary, files(Files::Move)),
        rpc("/filesystem.Filesystem/Remove", USE, Unary, files(Files::Remove)),
        rpc("/filesystem.Filesystem/CreateWatcher", USE, Unary, files(Files::CreateWatcher)),
        rpc("/filesystem.Filesystem/GetWatcherEvents", USE, Unary, files(Files::GetWatcherEvents)),
        rpc("/filesystem.Filesystem/RemoveWatcher", USE, Unary, files(Files::RemoveWatcher)),
        rpc("/filesystem.Filesystem/WatchDir", USE, Stream, filesystem::watch),
    ]
}

/// A procedure of the Connect protocol.
fn rpc<H, F>(path: &'static str, access: Token, kind: CallKind, handler: H) -> Endpoint<EnvdSession>
where
    H: Fn(EnvdCall) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response, Failure>> + Send + 'static,
{
    Endpoint::<EnvdSession>::post(path, access).raw_body(kind.media_type(), true, "").handler(move |call| {
        let shown_id = call.service.target.shown_id.clone();
        let opened = EnvdCall::open(&call.service, kind, &call.parts.headers, call.body.0);
        let answering = opened.map(&handler);
        async move {
            let answered = match answering {
                Ok(answering) => answering.await,
                Err(failure) => Err(failure),
            };
            Ok(answered.unwrap_or_else(|failure| failure.response(Form::Rpc(kind), &shown_id)))
        }
    })
}

/// Answers a request to the port 49983 of a sandbox, and records it.
pub async fn answer(api: &Arc<E2bApi>, id: SandboxId, request: Request) -> Response {
    if request.uri().path() == STREAM_INPUT
        && let Some(pace) = request.extensions().get::<Pace>()
    {
        // The client sends when its user types.
        pace.take_time();
    }
    let mut visit = Visit::begin(&api.service.gate, Part::Envd, Some(id.clone()), &request);
    let request_id = visit.id.clone();
    let response = respond(api, id, request, request_id, &mut visit.record).await;
    visit.end(response)
}

async fn respond(
    api: &Arc<E2bApi>,
    id: SandboxId,
    request: Request,
    request_id: RequestId,
    log: &mut Record,
) -> Response {
    let Some(record) = api.service.engine.record(&id) else { return failure::not_running(&id.compact()) };
    let own = match E2bOptions::of(&record) {
        Ok(Some(own)) => own,
        Ok(None) => return failure::not_running(&id.compact()),
        Err(error) => return Failure::from(error).response(Form::Http, &id.compact()),
    };
    let target = Target {
        service: Arc::clone(&api.service),
        account: record.account.as_str().into(),
        shown_id: id.compact(),
        tokens: own.secure.then(|| api.tokens.clone()),
        defaults: RunDefaults::of_sandbox(&own),
        id,
    };
    let matched = api.procedures.find(request.method(), request.uri().path()).matched;
    let head = (request.method(), request.uri(), request.headers());
    let right = Right::of(&target, &matched, head);
    if right.is_ok() {
        log.account = Some(Arc::clone(&target.account));
    }
    if right.is_ok() && record.state() == SandboxState::Paused && !record.config.auto_resume {
        return failure::not_running(&target.shown_id);
    }
    let endpoint = match matched {
        Matched::Endpoint(endpoint) => endpoint,
        Matched::OtherMethod(resource) => return wrong_method(resource.path),
        Matched::Nothing => return unknown(request.uri().path()),
    };
    match right {
        Ok(right) => carry_out(api, endpoint, EnvdSession { target, right }, request, request_id).await,
        Err(refused) => refused.response(&target.shown_id),
    }
}

/// Runs the handler of an authorized request within the limits of the account.
async fn carry_out(
    api: &E2bApi,
    endpoint: &Endpoint<EnvdSession>,
    session: EnvdSession,
    request: Request,
    request_id: RequestId,
) -> Response {
    let call_kind = CallKind::of_media_type(endpoint.media_type);
    if let Some(kind) = call_kind
        && !kind.is_of(request.headers())
    {
        let message = format!("the content type of this method is {}", kind.media_type());
        return http_error(StatusCode::UNSUPPORTED_MEDIA_TYPE, &message);
    }
    let (form, shown_id) = (call_kind.map_or(Form::Http, Form::Rpc), session.target.shown_id.clone());
    let refuse = |error: ApiError| Failure::from(error).response(form, &shown_id);
    let (gate, target) = (&api.service.gate, &session.target);
    if endpoint.access.charge().is_some()
        && let Err(error) = gate.count_execution(&target.account, session.right.key_id(), &target.id)
    {
        return refuse(error);
    }
    // The state of health is open to everybody, and counts against nothing.
    let account = endpoint.access.scope().map(|_| Arc::clone(&target.account));
    let kind = kind_of(request.headers());
    let session = Arc::new(session);
    let authorized = Authorized { service: Arc::clone(&session), caller: None, request_id, request };
    let handler = async {
        session.target.resume_if_paused().await;
        endpoint.call(authorized).await
    };
    gate.run(account.as_ref(), kind, handler, refuse).await
}

fn wrong_method(path: &'static str) -> Response {
    let allowed = match path {
        "/health" => return unknown(path),
        FILES => "GET, HEAD, POST",
        _ => "POST",
    };
    let mut response = http_error(StatusCode::METHOD_NOT_ALLOWED, &format!("allowed: {allowed}"));
    response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allowed));
    response
}

fn unknown(path: &str) -> Response {
    http_error(StatusCode::NOT_FOUND, &format!("there is no {}", rules::quoted(path)))
}

async fn health(target: &Target) -> Response {
    match target.exists().await {
        true => StatusCode::NO_CONTENT.into_response(),
        false => failure::not_running(&target.shown_id),
    }
}
