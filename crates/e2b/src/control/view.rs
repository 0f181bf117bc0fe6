//! Response bodies of the control plane.

use admission::keyring::Caller;
use api::{OnTimeout, SandboxId, SandboxState, Timestamp};
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use rules::{Scope, TimeMs};
use serde::Serialize;
use serde_json::{Value, json};
use store::SandboxRecord;

use crate::{E2bApi, E2bOptions, ENVD_VERSION};

/// Required by their clients, and without a meaning here.
const CLIENT_ID: &str = "sandboxd";

pub fn json(status: StatusCode, body: &impl Serialize) -> Response {
    // Serializing text, numbers and lists cannot fail.
    let mut response = Response::new(Body::from(serde_json::to_vec(body).unwrap_or_default()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// The response to a create or a connect.
pub fn sandbox(api: &E2bApi, caller: &Caller, id: &SandboxId, own: &E2bOptions) -> Value {
    let traffic = token(caller, !own.public_ports, || api.tokens.traffic(id, &caller.key_id));
    let mut view = json!({
        "templateID": own.template,
        "alias": own.template,
        "sandboxID": id.compact(),
        "clientID": CLIENT_ID,
        "envdVersion": ENVD_VERSION,
        "domain": api.settings.domain,
        "trafficAccessToken": traffic,
    });
    if let Some(access) = token(caller, own.secure, || api.tokens.access(id, &caller.key_id)) {
        view["envdAccessToken"] = access.into();
    }
    view
}

/// Tokens allow commands, so keys without the scope do not get them.
fn token(caller: &Caller, is_needed: bool, sign: impl FnOnce() -> String) -> Option<String> {
    (is_needed && caller.scopes.allows(Scope::Execute)).then(sign)
}

/// A sandbox in a list.
pub fn listed(record: &SandboxRecord, own: &E2bOptions) -> Value {
    let resources = record.config.resources;
    json!({
        "templateID": own.template,
        "alias": own.template,
        "sandboxID": record.id.compact(),
        "clientID": CLIENT_ID,
        "startedAt": Timestamp::from(started_at(record)),
        "endAt": Timestamp::from(end_at(record)),
        "cpuCount": resources.cpu,
        "memoryMB": resources.memory_mb,
        "diskSizeMB": resources.disk_mb,
        "state": if record.state() == SandboxState::Paused { "paused" } else { "running" },
        "envdVersion": ENVD_VERSION,
        "metadata": record.config.metadata,
    })
}

/// One sandbox with all fields.
pub fn detail(api: &E2bApi, caller: &Caller, record: &SandboxRecord, own: &E2bOptions) -> Value {
    let mut view = listed(record, own);
    view["domain"] = api.settings.domain.clone().into();
    if let Some(access) = token(caller, own.secure, || api.tokens.access(&record.id, &caller.key_id)) {
        view["envdAccessToken"] = access.into();
    }
    let on_timeout = if record.config.on_timeout == OnTimeout::Pause { "pause" } else { "kill" };
    view["lifecycle"] = json!({ "autoResume": record.config.auto_resume, "onTimeout": on_timeout });
    view["allowInternetAccess"] = (record.config.network.egress.default == api::EgressDefault::Allow).into();
    view
}

/// When it last started to run.
pub fn started_at(record: &SandboxRecord) -> TimeMs {
    record.lifecycle.started_at().unwrap_or(record.created_at)
}

/// When its timeout is reached; of a paused one, when it was paused.
pub fn end_at(record: &SandboxRecord) -> TimeMs {
    record.expires_at().or(record.lifecycle.paused_at()).unwrap_or(started_at(record))
}
