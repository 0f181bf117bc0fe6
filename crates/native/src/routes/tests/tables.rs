//! Router, rules and document agree, and what they say is so.

use std::collections::BTreeSet;

use admission::endpoint::Access;
use api::{CommandBody, CreateBody, CreateNetwork};
use axum::body::Body;
use axum::http::{Method, Request, StatusCode};
use reader::RequestBody as _;
use rules::{Charge, KeyCharge, SandboxCharge, Scope};
use serde_json::{Value, json};

use super::fixture::{Fixture, request};
use crate::endpoint::Table;
use crate::routes::{document, endpoints};

const METHODS: [&str; 9] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"];
const OPEN: [&str; 9] = [
    "/v1/health",
    "/docs",
    "/docs/",
    "/docs/docs.css",
    "/docs/docs.js",
    "/docs/try.js",
    "/docs/start",
    "/docs/start.js",
    "/docs/openapi.json",
];

fn openapi() -> Value {
    serde_json::from_str(&document()).unwrap()
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    paths
        .flat_map(|(path, operations)| {
            let operations = operations.as_object().unwrap().iter();
            operations
                .map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation.clone()))
        })
        .collect()
}

fn table() -> Table {
    Table::new(endpoints()).unwrap()
}

fn access(table: &Table, method: &str, path: &str) -> Option<Access> {
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    table.find(&method, path).matched.rule().map(|rule| rule.access)
}

#[test]
fn the_table_of_rules() {
    let key = |scope, charge| Some(Access::Key { scope, charge });
    let read = key(Scope::Read, Charge::Key(KeyCharge::Read));
    let write = key(Scope::Write, Charge::Key(KeyCharge::Write));
    let one = "/v1/sandboxes/sb_aaaaaaaa";
    let execution = "/v1/sandboxes/sb_aaaaaaaa/executions/ex_aaaaaaaa";
    let execute = key(Scope::Execute, Charge::Sandbox(SandboxCharge::Execute));
    // Of one sandbox: what the specification does not name.
    let [inspect, change, interact] = [Scope::Read, Scope::Write, Scope::Execute]
        .map(|scope| key(scope, Charge::Sandbox(SandboxCharge::Operate)));
    let table = table();
    for (method, path, expected) in [
        ("GET", "/v1/sandboxes".to_owned(), read),
        ("HEAD", "/v1/sandboxes".to_owned(), read),
        ("POST", "/v1/sandboxes".to_owned(), key(Scope::Write, Charge::Key(KeyCharge::Create))),
        ("GET", one.to_owned(), read),
        ("GET", "/v1/sandboxes/..".to_owned(), read),
        ("DELETE", one.to_owned(), key(Scope::Write, Charge::Key(KeyCharge::Terminate))),
        ("POST", format!("{one}/pause"), write),
        ("POST", format!("{one}/resume"), write),
        ("POST", format!("{one}/execute"), execute),
        ("POST", format!("{one}/terminals"), interact),
        ("POST", format!("{one}/code"), interact),
        ("POST", format!("{one}/snapshots"), write),
        ("POST", format!("{one}/rollback"), write),
        ("POST", format!("{one}/fork"), key(Scope::Write, Charge::Key(KeyCharge::Create))),
        ("GET", format!("{one}/executions"), inspect),
        ("GET", execution.to_owned(), inspect),
        ("DELETE", execution.to_owned(), interact),
        ("GET", format!("{execution}/output"), inspect),
        ("POST", format!("{execution}/stdin"), interact),
        ("POST", format!("{execution}/signal"), interact),
        ("GET", format!("{execution}/attach"), interact),
        ("HEAD", format!("{execution}/attach"), interact),
        ("GET", format!("{one}/ports"), inspect),
        ("POST", format!("{one}/ports"), change),
        ("DELETE", format!("{one}/ports/80"), change),
        ("POST", format!("{one}/ports/80/token"), change),
        ("GET", format!("{one}/network"), inspect),
        ("PATCH", format!("{one}/network"), change),
        ("GET", format!("{one}/metrics"), inspect),
        ("PUT", format!("{one}/timeout"), change),
        ("GET", format!("{one}/timeout"), None),
        ("POST", format!("{one}/network"), None),
        ("GET", format!("{one}/files"), inspect),
        ("HEAD", format!("{one}/files"), inspect),
        ("PUT", format!("{one}/files"), change),
        ("DELETE", format!("{one}/files"), change),
        ("POST", format!("{one}/files"), None),
        ("GET", format!("{one}/files/list"), inspect),
        ("GET", format!("{one}/files/stat"), inspect),
        ("GET", format!("{one}/files/exists"), inspect),
        ("POST", format!("{one}/files/mkdir"), change),
        ("POST", format!("{one}/files/move"), change),
        ("GET", format!("{one}/files/tar"), inspect),
        ("PUT", format!("{one}/files/tar"), change),
        ("GET", format!("{one}/files/"), None),
        ("GET", format!("{one}/files/other"), None),
        ("GET", format!("{one}/events"), inspect),
        ("POST", format!("{one}/events"), change),
        ("GET", "/v1/events".to_owned(), read),
        ("POST", "/v1/events".to_owned(), None),
        ("GET", "/v1/images".to_owned(), read),
        ("POST", "/v1/images".to_owned(), None),
        ("GET", "/v1/info".to_owned(), read),
        ("POST", "/v1/info".to_owned(), None),
        ("GET", "/v1/usage".to_owned(), read),
        ("POST", "/v1/usage".to_owned(), None),
        ("GET", "/v1/openapi.json".to_owned(), read),
        ("GET", "/v1/health".to_owned(), Some(Access::Open)),
        ("TRACE", "/v1/health".to_owned(), Some(Access::Open)),
        ("PUT", "/v1/sandboxes".to_owned(), None),
        ("GET", format!("{one}/pause"), None),
        ("GET", "/v1/sandboxes/".to_owned(), None),
        ("POST", "/v1/sandboxes//pause".to_owned(), write),
        ("POST", format!("{one}/pause/"), None),
        ("GET", "/".to_owned(), None),
    ] {
        assert_eq!(access(&table, method, &path), expected, "{method} {path}");
    }
    let template = table.find(&Method::POST, &format!("{one}/execute")).matched.rule().unwrap().route;
    assert_eq!(template, "/v1/sandboxes/{id}/execute");
}

/// So that no use of a sandbox takes the writes that its owner needs to pause or resume it, or the reads of the account.
#[test]
fn other_operations_of_a_sandbox_count_against_the_sandbox_alone() {
    let of_keys = ["/pause", "/resume", "/fork", "/snapshots", "/rollback"];
    let mut operations = 0;
    for endpoint in endpoints() {
        let Some(operation) = endpoint.path.strip_prefix("/v1/sandboxes/{id}/") else { continue };
        let Access::Key { charge, .. } = endpoint.access else { panic!("{} is open", endpoint.path) };
        let operation = format!("/{operation}");
        let is_of_key = of_keys.contains(&operation.as_str());
        assert_eq!(matches!(charge, Charge::Key(_)), is_of_key, "{} {}", endpoint.method, endpoint.path);
        let is_execution = charge == Charge::Sandbox(SandboxCharge::Execute);
        assert_eq!(is_execution, operation == "/execute", "{} {}", endpoint.method, endpoint.path);
        operations += u32::from(!is_of_key && !is_execution);
    }
    assert!(operations > 30, "{operations}");
}

#[tokio::test]
async fn a_path_takes_the_declared_methods_and_no_other() {
    let (fixture, table) = (Fixture::new().await, table());
    let document = openapi();
    let mut paths: BTreeSet<String> = operations(&document).into_iter().map(|(_, path, _)| path).collect();
    paths.extend(OPEN.map(str::to_owned));
    for path in paths {
        let path = path.replace("{id}", "sb_aaaaaaaa");
        let mut taken = BTreeSet::new();
        let mut allowed = BTreeSet::new();
        for method in METHODS {
            let answer = fixture.call(method, &path).await;
            if answer.status == StatusCode::METHOD_NOT_ALLOWED {
                assert!(
                    matches!(access(&table, method, &path), None | Some(Access::Open)),
                    "{method} {path}"
                );
                allowed = answer.header("allow").split(',').map(str::to_owned).collect();
                if method == "HEAD" {
                    assert_eq!(answer.text, "", "{path}");
                    continue;
                }
                assert_eq!(answer.code(), "METHOD_NOT_ALLOWED");
                assert!(answer.message().contains(&format!("'{method}'")), "{}", answer.message());
            } else {
                assert!(access(&table, method, &path).is_some(), "{method} {path} is {}", answer.status);
                taken.insert(method.to_owned());
            }
        }
        // `Allow` lists what the document has at this path; a template of this name takes more.
        if path == "/v1/templates/contexts" {
            assert_eq!(allowed, BTreeSet::from(["POST".to_owned()]));
            allowed.extend(["DELETE", "GET", "HEAD"].map(str::to_owned));
        }
        assert_eq!(allowed, taken, "{path}");
    }
}

#[tokio::test]
async fn what_needs_a_key_is_refused_without() {
    let fixture = Fixture::new().await;
    for (method, path, operation) in operations(&openapi()) {
        let path = path.replace("{id}", "sb_aaaaaaaa");
        let asked = Request::builder().method(method.as_str()).uri(&path).body(Body::empty()).unwrap();
        let answer = fixture.ask(asked).await;
        if operation["security"] == json!([]) {
            assert_eq!((answer.status, path.as_str()), (StatusCode::OK, "/v1/health"));
        } else {
            assert_eq!(
                (answer.status, answer.code()),
                (StatusCode::UNAUTHORIZED, "UNAUTHORIZED"),
                "{method} {path}"
            );
            assert!(operation["responses"]["401"].is_object() && operation["x-scope"].is_string());
        }
    }
}

#[tokio::test]
async fn health_and_the_page_need_no_key() {
    let fixture = Fixture::new().await;
    for (path, kind, part) in [
        ("/v1/health", "application/json; charset=utf-8", "\"status\":\"ok\",\"version\":\"v1\""),
        ("/docs", "text/html; charset=utf-8", "<!doctype html>"),
        ("/docs/", "text/html; charset=utf-8", "/docs/docs.js"),
        ("/docs/docs.css", "text/css; charset=utf-8", "{"),
        ("/docs/docs.js", "text/javascript; charset=utf-8", "/docs/openapi.json"),
        ("/docs/try.js", "text/javascript; charset=utf-8", "fetch("),
        ("/docs/start", "text/html; charset=utf-8", "/docs/openapi.json"),
        ("/docs/start.js", "text/javascript; charset=utf-8", "location.origin"),
        ("/docs/openapi.json", "application/json; charset=utf-8", "\"openapi\""),
    ] {
        let answer = fixture.ask(Request::builder().uri(path).body(Body::empty()).unwrap()).await;
        assert_eq!((answer.status, answer.header("content-type")), (StatusCode::OK, kind), "{path}");
        assert!(answer.text.contains(part), "{path}");
        if path.starts_with("/docs") {
            assert!(
                answer
                    .header("content-security-policy")
                    .starts_with("default-src 'none'; script-src 'self';")
            );
            assert_eq!(answer.header("x-content-type-options"), "nosniff");
        }
    }
    let keyed = fixture.ask(request("GET", "/v1/openapi.json").body(Body::empty()).unwrap()).await;
    assert_eq!((keyed.status, keyed.text), (StatusCode::OK, document()));
}

/// A request for `/`, as a browser or another client sends it.
fn at_the_root(method: &str, accept: &str) -> Request<Body> {
    Request::builder().method(method).uri("/").header("accept", accept).body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_browser_at_the_root_gets_the_start_page_and_others_an_error_as_json() {
    const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let fixture = Fixture::new().await;
    let page = fixture.ask(at_the_root("GET", BROWSER)).await;
    assert_eq!((page.status, page.header("content-type")), (StatusCode::OK, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self';"));
    assert_eq!(page.header("vary"), "Accept");
    assert!(page.text.contains(concat!("version ", env!("CARGO_PKG_VERSION"))) && !page.text.contains("{{"));
    assert!(page.text.contains("href=\"/docs\"") && !page.text.contains("sbk_"), "{}", page.text);
    let head = fixture.ask(at_the_root("HEAD", BROWSER)).await;
    assert_eq!((head.status, head.text.as_str()), (StatusCode::OK, ""));

    for (method, accept) in [("GET", "*/*"), ("GET", "application/json"), ("POST", BROWSER)] {
        let anonymous = fixture.ask(at_the_root(method, accept)).await;
        assert_eq!((anonymous.status, anonymous.code()), (StatusCode::UNAUTHORIZED, "UNAUTHORIZED"));
    }
    let keyed = fixture.call("GET", "/").await;
    assert_eq!((keyed.status, keyed.code()), (StatusCode::NOT_FOUND, "NOT_FOUND"));
}

/// Follows `$ref` and calls back with each schema, parameter and response of the document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                found.insert(reference.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_complete() {
    let (document, table) = (openapi(), table());
    assert_eq!(document["openapi"], "3.1.0");
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    for reference in found {
        assert!(document.pointer(reference.strip_prefix('#').unwrap()).is_some(), "{reference} is nowhere");
    }
    for (method, path, operation) in operations(&document) {
        let here = format!("{method} {path}");
        assert!(operation["summary"].is_string() && operation["operationId"].is_string(), "{here}");
        assert!(access(&table, &method, &path).is_some(), "{here}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.contains_key("500") && responses.contains_key("400"), "{here}");
        for (status, response) in responses {
            let headers = response["headers"].as_object().unwrap();
            assert!(
                headers.contains_key("X-Request-Id") && headers.contains_key("X-RateLimit-Reset"),
                "{here} {status}"
            );
            assert_eq!(headers.contains_key("Retry-After"), ["429", "503"].contains(&status.as_str()));
            let raw = ["application/octet-stream", "application/x-tar"];
            let is_raw = raw.iter().any(|kind| response["content"][kind]["schema"]["type"] == "string");
            if is_raw {
                assert!(
                    path.contains("/files") && ["200", "206"].contains(&status.as_str()),
                    "{here} {status}"
                );
                continue;
            }
            if ["101", "204"].contains(&status.as_str()) {
                assert!(response["content"].is_null(), "{here} {status} has no body");
                continue;
            }
            let bodies = response["content"].as_object();
            let is_stream = bodies.is_some_and(|kinds| kinds.keys().eq(["text/event-stream"]));
            let kind = if is_stream { "text/event-stream" } else { "application/json" };
            let content = &response["content"][kind];
            assert!(content["schema"].is_object(), "{here} {status}");
            assert!(!is_stream || status == "200", "{here} {status}");
            if status.as_str() >= "400" {
                assert_eq!(content["schema"]["$ref"], "#/components/schemas/ErrorBody", "{here} {status}");
            }
        }
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            assert!(
                !parameter["schema"]["type"].is_array(),
                "{here}: a parameter is never null: {parameter}"
            );
        }
    }
    let stream = &document["paths"]["/v1/sandboxes/{id}/execute"]["post"]["responses"]["200"]["content"];
    assert!(stream["text/event-stream"]["schema"]["description"].is_string());
    let codes = document["components"]["schemas"]["ErrorCode"]["enum"].as_array().unwrap();
    assert_eq!(codes.len(), api::ErrorCode::ALL.len());
}

#[test]
fn the_document_that_is_checked_in_is_this_one() {
    let kept = include_str!("../../../../../docs/openapi.json");
    if kept != document() {
        let now = std::env::temp_dir().join("sandboxd-openapi.json");
        std::fs::write(&now, document()).unwrap();
        panic!("docs/openapi.json is old: replace it with {}", now.display());
    }
}

#[test]
fn examples_of_bodies_are_read() {
    let document = openapi();
    let example = |path: &str| document.pointer(path).unwrap().to_string();
    let create = example("/paths/~1v1~1sandboxes/post/requestBody/content/application~1json/example");
    CreateBody::read(create.as_bytes(), &Default::default()).unwrap();
    let execute =
        example("/paths/~1v1~1sandboxes~1{id}~1execute/post/requestBody/content/application~1json/example");
    CommandBody::read(execute.as_bytes(), &Default::default()).unwrap();
    let change =
        example("/paths/~1v1~1sandboxes~1{id}~1network/patch/requestBody/content/application~1json/example");
    CreateNetwork::read(change.as_bytes(), &Default::default()).unwrap();
}
