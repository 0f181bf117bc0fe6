//! The document allows what the readers accept, and nothing else. Values at the bounds of each schema are read and compared.
//!
//! What a schema cannot express is not compared: bounds in bytes of texts that are not ASCII, the sum of all variables, and what is
//! decided with the state of the service.

mod schema;
mod values;

use api::{
    CodeBody, CodeContextBody, CommandBody, CreateBody, CreateNetwork, EventsBody, ExposeBody, ForkBody,
    PauseBody, ResumeBody, SignalBody, SnapshotBody, TemplateBody, TerminalBody, TimeoutBody, TokenBody,
};
use reader::RequestBody;
use serde_json::Value;

use self::schema::Schemas;
use crate::routes::document;

/// A body: the path and the method of its endpoint, and its reader.
struct Body {
    path: &'static str,
    method: &'static str,
    accepts: fn(&[u8]) -> bool,
}

fn accepts<T: RequestBody<Rules: Default>>(body: &[u8]) -> bool {
    T::read(body, &T::Rules::default()).is_ok()
}

const fn body(path: &'static str, method: &'static str, accepts: fn(&[u8]) -> bool) -> Body {
    Body { path, method, accepts }
}

/// All bodies but that of a rollback, whose id is looked up without a check.
const BODIES: [Body; 16] = [
    body("/v1/sandboxes", "post", accepts::<CreateBody>),
    body("/v1/sandboxes/{id}/network", "patch", accepts::<CreateNetwork>),
    body("/v1/sandboxes/{id}/timeout", "put", accepts::<TimeoutBody>),
    body("/v1/sandboxes/{id}/execute", "post", accepts::<CommandBody>),
    body("/v1/sandboxes/{id}/terminals", "post", accepts::<TerminalBody>),
    body("/v1/sandboxes/{id}/code", "post", accepts::<CodeBody>),
    body("/v1/sandboxes/{id}/code/contexts", "post", accepts::<CodeContextBody>),
    body("/v1/sandboxes/{id}/executions/{execution}/signal", "post", accepts::<SignalBody>),
    body("/v1/sandboxes/{id}/ports", "post", accepts::<ExposeBody>),
    body("/v1/sandboxes/{id}/ports/{port}/token", "post", accepts::<TokenBody>),
    body("/v1/sandboxes/{id}/snapshots", "post", accepts::<SnapshotBody>),
    body("/v1/sandboxes/{id}/fork", "post", accepts::<ForkBody>),
    body("/v1/sandboxes/{id}/pause", "post", accepts::<PauseBody>),
    body("/v1/sandboxes/{id}/resume", "post", accepts::<ResumeBody>),
    body("/v1/sandboxes/{id}/events", "post", accepts::<EventsBody>),
    body("/v1/templates", "post", accepts::<TemplateBody>),
];

/// Whether a value has only fields that are decided by its schema.
fn is_compared(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().all(is_compared),
        Value::Object(fields) => fields.iter().all(|(name, field)| match name.as_str() {
            // The service decides which isolations there are, and decodes a context with its archive.
            "isolation" | "context" => !field.is_string(),
            // The document names only UTC, and no day that some months lack.
            "timestamp" => field.as_str().is_none_or(|text| text.parse::<api::Timestamp>().is_err()),
            _ => is_compared(field),
        }),
        _ => true,
    }
}

#[test]
fn bodies_that_the_document_allows_are_those_that_are_accepted() {
    let document: Value = serde_json::from_str(&document()).unwrap();
    let schemas = Schemas(&document);
    let mut wrong = Vec::new();
    for Body { path, method, accepts } in &BODIES {
        let schema = &document["paths"][path][method]["requestBody"]["content"]["application/json"]["schema"];
        for value in schemas.bounds(schema).into_iter().filter(is_compared) {
            let is_allowed = schemas.allows(schema, &value);
            if is_allowed != accepts(value.to_string().as_bytes()) {
                let shown: String = value.to_string().chars().take(200).collect();
                wrong.push(format!("{method} {path}: allowed: {is_allowed}: {shown}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_body_is_compared() {
    let document: Value = serde_json::from_str(&document()).unwrap();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let has_fields = operation["requestBody"]["content"]["application/json"].is_object();
            let is_listed = BODIES.iter().any(|body| body.path == path && body.method == method);
            assert!(!has_fields || is_listed || path.ends_with("/rollback"), "{method} {path}");
        }
    }
}

/// A parameter: its name, its reader, and an endpoint that has it.
type Parameter = (&'static str, fn(&str) -> bool, &'static str, &'static str);

/// Percent-encodes every byte, so that the text arrives as it is.
fn query(name: &str, value: &str) -> String {
    let encoded: String = value.bytes().map(|byte| format!("%{byte:02x}")).collect();
    format!("{name}={encoded}")
}

const PARAMETERS: [Parameter; 20] = [
    ("limit", |text| reader::list(Some(&query("limit", text))).is_ok(), "/v1/sandboxes", "get"),
    ("offset", |text| reader::list(Some(&query("offset", text))).is_ok(), "/v1/sandboxes", "get"),
    ("state", |text| reader::list(Some(&query("state", text))).is_ok(), "/v1/sandboxes", "get"),
    ("image", |text| reader::list(Some(&query("image", text))).is_ok(), "/v1/sandboxes", "get"),
    ("details", |text| reader::details(Some(&query("details", text))).is_ok(), "/v1/sandboxes", "get"),
    ("name", |text| reader::images(Some(&query("name", text))).is_ok(), "/v1/images", "get"),
    ("limit", |text| reader::images(Some(&query("limit", text))).is_ok(), "/v1/images", "get"),
    ("sandboxId", |text| reader::snapshots(Some(&query("sandboxId", text))).is_ok(), "/v1/snapshots", "get"),
    ("name", |text| reader::snapshots(Some(&query("name", text))).is_ok(), "/v1/snapshots", "get"),
    ("state", |text| reader::templates(Some(&query("state", text))).is_ok(), "/v1/templates", "get"),
    ("sandboxId", |text| reader::events(Some(&query("sandboxId", text))).is_ok(), "/v1/events", "get"),
    ("runId", |text| reader::events(Some(&query("runId", text))).is_ok(), "/v1/events", "get"),
    ("after", |text| reader::events(Some(&query("after", text))).is_ok(), "/v1/events", "get"),
    ("order", |text| reader::events(Some(&query("order", text))).is_ok(), "/v1/events", "get"),
    ("lastEventId", |text| reader::events(Some(&query("lastEventId", text))).is_ok(), "/v1/events", "get"),
    ("path", |text| file(text, "path"), "/v1/sandboxes/{id}/files", "get"),
    ("to", |text| named(text, "to"), "/v1/sandboxes/{id}/files/move", "post"),
    (
        "mode",
        |text| reader::file_query(Some(&query("mode", text))).is_ok_and(|query| query.mode().is_ok()),
        "/v1/sandboxes/{id}/files",
        "put",
    ),
    ("X-Run-Id", |text| rules::run_header(text.as_bytes()).is_ok(), "/v1/sandboxes/{id}/execute", "post"),
    ("Idempotency-Key", |text| rules::idempotency_key(text.as_bytes()).is_ok(), "/v1/sandboxes", "post"),
];

fn file(text: &str, name: &str) -> bool {
    reader::file_query(Some(&query(name, text))).is_ok_and(|query| query.path(name).is_ok())
}

fn named(text: &str, name: &str) -> bool {
    reader::file_query(Some(&query(name, text))).is_ok_and(|query| query.named_path(name).is_ok())
}

/// The text of a value in a query. `None`: it has none.
fn in_query(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[test]
fn parameters_that_the_document_allows_are_those_that_are_accepted() {
    let document: Value = serde_json::from_str(&document()).unwrap();
    let schemas = Schemas(&document);
    let mut wrong = Vec::new();
    for (name, accepts, path, method) in PARAMETERS {
        let parameters = document["paths"][path][method]["parameters"].as_array().unwrap();
        let parameter = parameters.iter().find(|parameter| parameter["name"] == name).unwrap();
        let schema = &parameter["schema"];
        for value in schemas.bounds(schema) {
            let Some(text) = in_query(&value) else { continue };
            // A query has only texts: a number is allowed as itself or, for a text, as its digits.
            let is_allowed =
                schemas.allows(schema, &value) || schemas.allows(schema, &Value::from(text.as_str()));
            if is_allowed != accepts(&text) {
                wrong.push(format!(
                    "{method} {path} {name}: allowed: {is_allowed}: {:?}",
                    text.chars().take(80).collect::<String>()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
