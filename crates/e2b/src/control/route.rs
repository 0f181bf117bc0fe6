//! The paths of the control plane. Both generations of paths lead to the same call.

use api::{SandboxId, TemplateId};
use axum::http::{Method, StatusCode};

use super::query::decoded;
use crate::error::E2bError;

/// A supported call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Create,
    List,
    /// The list of old clients, without pages.
    ListRunning,
    /// The template that a name stands for.
    Alias(String),
    Get(SandboxId),
    Kill(SandboxId),
    Pause(SandboxId),
    Connect(SandboxId),
    Resume(SandboxId),
    Timeout(SandboxId),
    Refresh(SandboxId),
    Network(SandboxId),
    Metrics(SandboxId),
    /// The newest metrics of several sandboxes.
    LatestMetrics,
    Logs(SandboxId),
    /// The log of old clients, with a line as JSON for each entry.
    LogLines(SandboxId),
    Fork(SandboxId),
    TakeSnapshot(SandboxId),
    ListSnapshots,
    /// Deletes a template or a snapshot, which their clients call a template too.
    DeleteTemplate(String),
    ListTemplates,
    /// The list in pages.
    PageTemplates,
    GetTemplate(String),
    /// Answers with the names of the template.
    UpdateTemplate(String),
    /// The call of old clients, without an answer.
    UpdateTemplateSilently(String),
    RequestBuild,
    UploadLink(TemplateId, String),
    /// A template, and one of its builds.
    StartBuild(TemplateId, String),
    BuildStatus(TemplateId, String),
    AssignTags,
    RemoveTags,
    ListTags(String),
}

/// The first parts of the paths of their API.
const ROOTS: [&str; 9] = [
    "sandboxes",
    "snapshots",
    "templates",
    "volumes",
    "volumecontent",
    "secrets",
    "teams",
    "nodes",
    "access-tokens",
];

/// Whether the path belongs to the control plane.
pub fn owns_path(path: &str) -> bool {
    split(path).first().is_some_and(|root| ROOTS.contains(root))
}

/// The parts of a path without the version.
fn split(path: &str) -> Vec<&str> {
    let mut parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    if matches!(parts.first(), Some(&("v2" | "v3"))) {
        parts.remove(0);
    }
    parts
}

/// Finds the call of a method and path.
pub fn find(method: &Method, path: &str) -> Result<Route, E2bError> {
    let parts = split(path);
    let found = match parts.as_slice() {
        ["templates", rest @ ..] => of_templates(method, path, rest)?,
        ["snapshots"] if method == Method::GET => Some(Route::ListSnapshots),
        ["sandboxes", rest @ ..] => of_sandboxes(method, path, rest)?,
        _ => None,
    };
    found.ok_or_else(|| refuse(method, path, &parts))
}

/// Whether the path is of the second generation.
fn is_v2(path: &str) -> bool {
    path.starts_with("/v2/")
}

fn of_sandboxes(method: &Method, path: &str, parts: &[&str]) -> Result<Option<Route>, E2bError> {
    let route = match (method.as_str(), parts) {
        ("POST", []) => Route::Create,
        ("GET", []) if is_v2(path) => Route::List,
        ("GET", []) => Route::ListRunning,
        ("GET", ["metrics"]) => Route::LatestMetrics,
        ("GET", [id]) => Route::Get(parse_id(id)?),
        ("DELETE", [id]) => Route::Kill(parse_id(id)?),
        ("POST", [id, "pause"]) => Route::Pause(parse_id(id)?),
        ("POST", [id, "connect"]) => Route::Connect(parse_id(id)?),
        ("POST", [id, "resume"]) => Route::Resume(parse_id(id)?),
        ("POST", [id, "timeout"]) => Route::Timeout(parse_id(id)?),
        ("POST", [id, "refreshes"]) => Route::Refresh(parse_id(id)?),
        ("PUT", [id, "network"]) => Route::Network(parse_id(id)?),
        ("GET", [id, "metrics"]) => Route::Metrics(parse_id(id)?),
        ("GET", [id, "logs"]) if is_v2(path) => Route::Logs(parse_id(id)?),
        ("GET", [id, "logs"]) => Route::LogLines(parse_id(id)?),
        ("POST", [id, "fork"]) => Route::Fork(parse_id(id)?),
        ("POST", [id, "snapshots"]) => Route::TakeSnapshot(parse_id(id)?),
        _ => return Ok(None),
    };
    Ok(Some(route))
}

fn of_templates(method: &Method, path: &str, parts: &[&str]) -> Result<Option<Route>, E2bError> {
    let route = match (method.as_str(), parts) {
        ("GET", []) if is_v2(path) => Route::PageTemplates,
        ("GET", []) => Route::ListTemplates,
        ("POST", []) if path.starts_with("/v3/") => Route::RequestBuild,
        ("GET", ["aliases", name]) => Route::Alias(decoded(name)),
        ("POST", ["tags"]) => Route::AssignTags,
        ("DELETE", ["tags"]) => Route::RemoveTags,
        ("GET", [name]) => Route::GetTemplate(decoded(name)),
        ("DELETE", [name]) => Route::DeleteTemplate(decoded(name)),
        ("PATCH", [name]) if is_v2(path) => Route::UpdateTemplate(decoded(name)),
        ("PATCH", [name]) => Route::UpdateTemplateSilently(decoded(name)),
        ("GET", [name, "tags"]) => Route::ListTags(decoded(name)),
        ("GET", [id, "files", hash]) => Route::UploadLink(parse_template(id)?, decoded(hash)),
        ("POST", [id, "builds", build]) if is_v2(path) => {
            Route::StartBuild(parse_template(id)?, decoded(build))
        }
        ("GET", [id, "builds", build, "status"]) => Route::BuildStatus(parse_template(id)?, decoded(build)),
        _ => return Ok(None),
    };
    Ok(Some(route))
}

fn refuse(method: &Method, path: &str, parts: &[&str]) -> E2bError {
    let call = format!("{method} {}", rules::quoted(path));
    match parts {
        ["sandboxes"]
        | ["snapshots"]
        | ["sandboxes", _]
        | ["templates", "aliases", _]
        | [
            "sandboxes",
            _,
            "pause" | "connect" | "resume" | "timeout" | "refreshes" | "network" | "metrics" | "logs"
            | "fork" | "snapshots",
        ] => E2bError::new(StatusCode::METHOD_NOT_ALLOWED, format!("{call} is not a call of this API")),
        ["sandboxes", id, ..] if parse_id(id).is_err() => E2bError::no_sandbox(id),
        [root, ..] if ROOTS.contains(root) => {
            E2bError::new(StatusCode::NOT_IMPLEMENTED, format!("{call} is not supported by this service"))
        }
        _ => E2bError::not_found(format!("there is no call {call}")),
    }
}

/// Ids in each of their forms: `sb4h1v…`, `sb_4h1v…` and `sb-4h1v…`. Another text is no sandbox's id.
pub fn parse_id(text: &str) -> Result<SandboxId, E2bError> {
    let id = text.parse().ok().or_else(|| SandboxId::from_host_name(text));
    id.ok_or_else(|| E2bError::no_sandbox(text))
}

fn parse_template(text: &str) -> Result<TemplateId, E2bError> {
    text.parse().map_err(|_| E2bError::not_found(format!("template {} not found", rules::quoted(text))))
}

/// The template and the hash of a link to upload files.
pub fn upload(path: &str) -> Option<(TemplateId, String)> {
    match split(path).as_slice() {
        ["templates", id, "files", hash] => Some((id.parse().ok()?, (*hash).to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(method: &str, path: &str) -> Result<Route, u16> {
        find(&method.parse().unwrap(), path).map_err(|error| error.status.as_u16())
    }

    #[test]
    fn both_generations_of_paths_are_known() {
        let id: SandboxId = "sb_abcdefgh23".parse().unwrap();
        assert_eq!(at("POST", "/sandboxes"), Ok(Route::Create));
        assert_eq!(at("POST", "/v2/sandboxes"), Ok(Route::Create));
        assert_eq!(at("GET", "/v2/sandboxes"), Ok(Route::List));
        assert_eq!(at("GET", "/sandboxes"), Ok(Route::ListRunning));
        for form in ["sbabcdefgh23", "sb_abcdefgh23", "sb-abcdefgh23"] {
            assert_eq!(at("GET", &format!("/sandboxes/{form}")), Ok(Route::Get(id.clone())), "{form}");
        }
        assert_eq!(at("POST", "/v2/sandboxes/sbabcdefgh23/connect"), Ok(Route::Connect(id.clone())));
        assert_eq!(at("GET", "/sandboxes/metrics"), Ok(Route::LatestMetrics));
        assert_eq!(at("GET", "/sandboxes/sbabcdefgh23/logs"), Ok(Route::LogLines(id.clone())));
        assert_eq!(at("GET", "/v2/sandboxes/sbabcdefgh23/logs"), Ok(Route::Logs(id)));
        assert_eq!(at("GET", "/templates"), Ok(Route::ListTemplates));
        assert_eq!(at("GET", "/v2/templates"), Ok(Route::PageTemplates));
        assert_eq!(at("GET", "/templates/a%2Fb"), Ok(Route::GetTemplate("a/b".to_owned())));
        assert_eq!(at("PATCH", "/templates/web"), Ok(Route::UpdateTemplateSilently("web".to_owned())));
        assert_eq!(at("PATCH", "/v2/templates/web"), Ok(Route::UpdateTemplate("web".to_owned())));
    }

    #[test]
    fn other_calls_have_the_status_that_their_clients_expect() {
        for (method, path, status) in [
            ("GET", "/sandboxes/../etc", 404),
            ("GET", "/sandboxes/nope", 404),
            ("PATCH", "/sandboxes", 405),
            ("GET", "/sandboxes/sbabcdefgh23/pause", 405),
            ("POST", "/sandboxes/nope/fork", 404),
            ("POST", "/sandboxes/sbabcdefgh23/logs", 405),
            ("GET", "/sandboxes/nope/logs", 404),
            ("DELETE", "/sandboxes/metrics", 404),
            ("POST", "/v2/templates", 501),
            ("POST", "/templates/web/builds/1", 501),
            ("GET", "/templates/nope/builds/1/status", 404),
            ("GET", "/volumes", 501),
            ("GET", "/", 404),
            ("GET", "/v2/", 404),
            ("GET", "/v1/sandboxes", 404),
        ] {
            assert_eq!(at(method, path), Err(status), "{method} {path}");
        }
    }

    #[test]
    fn the_native_api_keeps_its_paths() {
        for (path, owned) in [
            ("/v1/sandboxes", false),
            ("/docs", false),
            ("/", false),
            ("/mcp", false),
            ("/v2/x", false),
            ("/sandboxes", true),
            ("/v2/sandboxes/x", true),
            ("/v3/templates", true),
        ] {
            assert_eq!(owns_path(path), owned, "{path}");
        }
    }
}
