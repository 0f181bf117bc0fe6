//! Who may do what, and what it counts against: a table by method and path.
//!
//! The layers ask it before a handler runs. It has a row for each route of the router above it, which a test compares. The
//! template of a path is its name in logs and metrics.

use axum::http::Method;
use rules::{Charge, Endpoint, Scope};

use crate::layers::{Access, Rule};

/// The rule of a request, or nothing where there is no such route, or not with that method. What needs no key needs none to be
/// told that it does not take a method, so an open path has its rule with any.
pub fn rule(method: &Method, path: &str) -> Option<Rule> {
    let (route, kind) = route(path)?;
    // What answers GET answers HEAD.
    let asked = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let access = match kind {
        Kind::Open => Access::Open,
        Kind::Keyed(methods, _) if !methods.contains(&asked) => return None,
        Kind::Keyed(_, endpoint) => Access::Key {
            scope: Scope::needed(method.as_str(), endpoint),
            charge: Charge::of(method.as_str(), endpoint),
        },
    };
    Some(Rule { route, access })
}

enum Kind {
    Open,
    /// With the methods it takes.
    Keyed(&'static [&'static str], Endpoint),
}

fn route(path: &str) -> Option<(&'static str, Kind)> {
    let post = |endpoint| Kind::Keyed(&["POST"], endpoint);
    Some(match path {
        "/v1/health" => ("/v1/health", Kind::Open),
        "/docs" => ("/docs", Kind::Open),
        "/docs/" => ("/docs/", Kind::Open),
        "/docs/docs.css" => ("/docs/docs.css", Kind::Open),
        "/docs/docs.js" => ("/docs/docs.js", Kind::Open),
        "/docs/openapi.json" => ("/docs/openapi.json", Kind::Open),
        "/v1/openapi.json" => ("/v1/openapi.json", Kind::Keyed(&["GET"], Endpoint::Other)),
        "/v1/sandboxes" => ("/v1/sandboxes", Kind::Keyed(&["GET", "POST"], Endpoint::Sandboxes)),
        "/v1/events" => ("/v1/events", Kind::Keyed(&["GET"], Endpoint::Other)),
        "/v1/images" => ("/v1/images", Kind::Keyed(&["GET"], Endpoint::Other)),
        _ => {
            let rest = path.strip_prefix("/v1/sandboxes/")?;
            // As the router has it: between two slashes even nothing is an id, if one that names no sandbox.
            match rest.split_once('/') {
                None if rest.is_empty() => return None,
                None => ("/v1/sandboxes/{id}", Kind::Keyed(&["GET", "DELETE"], Endpoint::Other)),
                Some((_, "pause")) => ("/v1/sandboxes/{id}/pause", post(Endpoint::Other)),
                Some((_, "resume")) => ("/v1/sandboxes/{id}/resume", post(Endpoint::Other)),
                Some((_, "network")) => {
                    ("/v1/sandboxes/{id}/network", Kind::Keyed(&["GET", "PATCH"], Endpoint::Other))
                }
                Some((_, files)) if files == "files" || files.starts_with("files/") => {
                    return file_route(files);
                }
                Some((_, ports)) if ports == "ports" || ports.starts_with("ports/") => {
                    return port_route(ports);
                }
                Some((_, "terminals")) => ("/v1/sandboxes/{id}/terminals", post(Endpoint::Execute)),
                Some((_, executions)) if executions.starts_with("executions") => {
                    return execution_route(executions);
                }
                Some((_, "execute")) => ("/v1/sandboxes/{id}/execute", post(Endpoint::Execute)),
                Some((_, "events")) => {
                    ("/v1/sandboxes/{id}/events", Kind::Keyed(&["GET", "POST"], Endpoint::Other))
                }
                Some(_) => return None,
            }
        }
    })
}

fn port_route(rest: &str) -> Option<(&'static str, Kind)> {
    let other = |methods| Kind::Keyed(methods, Endpoint::Other);
    let Some(port) = rest.strip_prefix("ports/") else {
        return Some(("/v1/sandboxes/{id}/ports", other(&["GET", "POST"])));
    };
    match port.split_once('/') {
        None if port.is_empty() => None,
        None => Some(("/v1/sandboxes/{id}/ports/{port}", other(&["DELETE"]))),
        Some((_, "token")) => Some(("/v1/sandboxes/{id}/ports/{port}/token", other(&["POST"]))),
        Some(_) => None,
    }
}

fn execution_route(rest: &str) -> Option<(&'static str, Kind)> {
    if rest == "executions" {
        return Some(("/v1/sandboxes/{id}/executions", Kind::Keyed(&["GET"], Endpoint::Other)));
    }
    let (execution, what) = match rest.strip_prefix("executions/")?.split_once('/') {
        Some((execution, what)) => (execution, Some(what)),
        None => (&rest["executions/".len()..], None),
    };
    let post = Kind::Keyed(&["POST"], Endpoint::Execution);
    Some(match what {
        None if execution.is_empty() => return None,
        None => (
            "/v1/sandboxes/{id}/executions/{execution}",
            Kind::Keyed(&["GET", "DELETE"], Endpoint::Execution),
        ),
        Some("output") => {
            ("/v1/sandboxes/{id}/executions/{execution}/output", Kind::Keyed(&["GET"], Endpoint::Execution))
        }
        Some("stdin") => ("/v1/sandboxes/{id}/executions/{execution}/stdin", post),
        Some("signal") => ("/v1/sandboxes/{id}/executions/{execution}/signal", post),
        Some("attach") => {
            ("/v1/sandboxes/{id}/executions/{execution}/attach", Kind::Keyed(&["GET"], Endpoint::Attach))
        }
        Some(_) => return None,
    })
}

fn file_route(rest: &str) -> Option<(&'static str, Kind)> {
    let other = |methods| Kind::Keyed(methods, Endpoint::Other);
    Some(match rest {
        "files" => ("/v1/sandboxes/{id}/files", other(&["GET", "PUT", "DELETE"])),
        "files/list" => ("/v1/sandboxes/{id}/files/list", other(&["GET"])),
        "files/stat" => ("/v1/sandboxes/{id}/files/stat", other(&["GET"])),
        "files/exists" => ("/v1/sandboxes/{id}/files/exists", other(&["GET"])),
        "files/mkdir" => ("/v1/sandboxes/{id}/files/mkdir", other(&["POST"])),
        "files/move" => ("/v1/sandboxes/{id}/files/move", other(&["POST"])),
        "files/tar" => ("/v1/sandboxes/{id}/files/tar", other(&["GET", "PUT"])),
        _ => return None,
    })
}
