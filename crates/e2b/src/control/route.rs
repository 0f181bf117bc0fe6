//! The paths of the control plane. Both generations of paths lead to the same call.

use admission::endpoint::{Endpoint, Matched, Table};
use api::{SandboxId, TemplateId};
use axum::http::{Method, StatusCode};

use crate::E2bApi;
use crate::error::E2bError;

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

/// The declared call of a method and path. A path of a later generation without a call of its own has that of the first one.
pub fn find<'a>(calls: &'a Table<E2bApi>, method: &Method, path: &str) -> Option<&'a Endpoint<E2bApi>> {
    let at = |path: &str| match calls.find(method, path).matched {
        Matched::Endpoint(endpoint) if endpoint.method == *method => Some(endpoint),
        _ => None,
    };
    let path = path.trim_matches('/');
    at(&format!("/{path}")).or_else(|| at(&format!("/{}", split(path).join("/"))))
}

/// The response for a method and path without a call.
pub fn refuse(method: &Method, path: &str) -> E2bError {
    let parts = split(path);
    let call = format!("{method} {}", rules::quoted(path));
    match parts.as_slice() {
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

/// The id of a template in a path.
pub fn parse_template(text: &str) -> Result<TemplateId, E2bError> {
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
    use super::super::calls;
    use super::*;

    /// The template of the call, or the status without one.
    fn at(method: &str, path: &str) -> Result<&'static str, u16> {
        let (table, method) = (Table::new(calls()).unwrap(), method.parse().unwrap());
        let found = find(&table, &method, path).map(|endpoint| endpoint.path);
        found.ok_or_else(|| refuse(&method, path).status.as_u16())
    }

    #[test]
    fn both_generations_of_paths_are_known() {
        for (method, path, template) in [
            ("POST", "/sandboxes", "/sandboxes"),
            ("POST", "/sandboxes/", "/sandboxes"),
            ("POST", "/v2/sandboxes", "/sandboxes"),
            ("GET", "/v2/sandboxes", "/v2/sandboxes"),
            ("GET", "/sandboxes", "/sandboxes"),
            ("GET", "/v3/sandboxes", "/sandboxes"),
            ("GET", "/sandboxes/sbabcdefgh23", "/sandboxes/{id}"),
            ("POST", "/v2/sandboxes/sbabcdefgh23/connect", "/sandboxes/{id}/connect"),
            ("GET", "/sandboxes/metrics", "/sandboxes/metrics"),
            ("DELETE", "/sandboxes/metrics", "/sandboxes/{id}"),
            ("GET", "/sandboxes/sbabcdefgh23/logs", "/sandboxes/{id}/logs"),
            ("GET", "/v2/sandboxes/sbabcdefgh23/logs", "/v2/sandboxes/{id}/logs"),
            ("GET", "/templates", "/templates"),
            ("GET", "/v2/templates", "/v2/templates"),
            ("GET", "/templates/a%2Fb", "/templates/{template}"),
            ("GET", "/templates/tags", "/templates/{template}"),
            ("PATCH", "/templates/web", "/templates/{template}"),
            ("PATCH", "/v2/templates/web", "/v2/templates/{template}"),
            ("POST", "/v3/templates", "/v3/templates"),
            ("GET", "/templates/a/builds/b/logs", "/templates/{template}/builds/{build}/logs"),
        ] {
            assert_eq!(at(method, path), Ok(template), "{method} {path}");
        }
    }

    #[test]
    fn ids_have_three_forms() {
        let id: SandboxId = "sb_abcdefgh23".parse().unwrap();
        for form in ["sbabcdefgh23", "sb_abcdefgh23", "sb-abcdefgh23"] {
            assert_eq!(parse_id(form).ok(), Some(id.clone()), "{form}");
        }
        for text in ["nope", "..", "metrics", ""] {
            assert_eq!(parse_id(text).err().map(|error| error.status.as_u16()), Some(404), "{text}");
        }
        assert_eq!(parse_template("nope").err().map(|error| error.status.as_u16()), Some(404));
    }

    #[test]
    fn other_calls_have_the_status_that_their_clients_expect() {
        for (method, path, status) in [
            ("GET", "/sandboxes/../etc", 404),
            ("PATCH", "/sandboxes", 405),
            ("GET", "/sandboxes/sbabcdefgh23/pause", 405),
            ("POST", "/sandboxes/sbabcdefgh23/logs", 405),
            ("POST", "/v2/templates", 501),
            ("POST", "/templates/web/builds/1", 501),
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
