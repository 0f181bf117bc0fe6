//! The OpenAPI document, made from the declared endpoints.
//!
//! What holds for every operation (general errors, headers, keys) is added here and not declared at each endpoint.

use std::collections::BTreeMap;

use admission::endpoint::{Access, DocumentedError, Operation, Tag};
use api::{
    DetachedBody, Done, ErrorBody, ErrorCode, ErrorObject, EventBody, EventKinds, ExecuteBody, RuntimeEvent,
};
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use crate::endpoint::Endpoint;

const SECURITY_SCHEME: &str = "apiKey";
const DESCRIPTION: &str = "Isolated Linux sandboxes on your own hardware: create, run commands, pause, resume, \
             terminate.\n\nEvery response has the header `X-Request-Id` and three headers for the rate \
             limit that is closest to exhaustion. Every error response has a body of the schema \
             `ErrorBody`.";

/// Errors of every operation.
const GENERAL: [DocumentedError; 4] = [
    DocumentedError::of(ErrorCode::InvalidRequest, "The request is malformed"),
    DocumentedError::of(ErrorCode::InvalidRequest, "The headers are too large or too many")
        .with_status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
    DocumentedError::of(ErrorCode::InternalError, "An internal error of the service"),
    DocumentedError::of(ErrorCode::ResourceExhausted, "The service lacks capacity at the moment"),
];

/// Follows the description of every JSON body.
const UNKNOWN_FIELDS: &str = "Unknown fields are refused in `network` and `resources`, and where their name is within \
     two edits of a known one or differs from it in case; others are ignored.";
/// Lists the ignored ones.
const IGNORED_FIELDS: &str = "Sandboxd-Ignored-Fields";

/// The error of every operation with a body.
const TOO_SLOW: DocumentedError =
    DocumentedError::of(ErrorCode::InvalidRequest, "The body arrived too slowly")
        .with_status(StatusCode::REQUEST_TIMEOUT);

/// Errors of every operation that needs a key.
const KEYED: [DocumentedError; 4] = [
    DocumentedError::of(ErrorCode::Unauthorized, "The API key is missing or invalid"),
    DocumentedError::of(ErrorCode::Forbidden, "The key lacks the required scope"),
    DocumentedError::of(ErrorCode::RateLimited, "A rate limit is reached"),
    DocumentedError::of(ErrorCode::QuotaExceeded, "A quota of the account is exceeded"),
];

/// The document as text, with a line feed at its end.
pub fn document(endpoints: &[Endpoint]) -> String {
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    let mut components = general_components();
    for endpoint in endpoints {
        let Some(operation) = &endpoint.operation else { continue };
        let contents = operation.responses.iter().flat_map(|response| &response.contents);
        for content in contents.chain(operation.body.as_ref().map(|body| &body.content)) {
            (content.components)(&mut components);
        }
        let method = endpoint.method.as_str().to_ascii_lowercase();
        paths.entry(endpoint.path).or_default().insert(method, describe(operation, endpoint.access));
    }
    let schemas: BTreeMap<String, RefOr<Schema>> = components.into_iter().collect();
    let tags: Vec<Value> =
        Tag::ALL.iter().map(|(tag, text)| json!({ "name": tag.name(), "description": text })).collect();
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sandboxd",
            "version": "1",
            "description": DESCRIPTION,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "headers": headers(),
            "securitySchemes": { SECURITY_SCHEME: {
                "type": "http",
                "scheme": "bearer",
                "description": "An API key, created with `sandboxd key create`: `Authorization: Bearer sbk_...`.",
            } },
        },
        "tags": tags,
        "security": [{ SECURITY_SCHEME: [] }],
    });
    format!("{document:#}\n")
}

/// Schemas that no response refers to: those of errors, of streamed events and of parameters.
fn general_components() -> Vec<(String, RefOr<Schema>)> {
    let mut components = Vec::new();
    let mut add = |name: &str, schema| components.push((name.to_owned(), schema));
    add(&ErrorBody::name(), ErrorBody::schema());
    add(&ErrorObject::name(), ErrorObject::schema());
    add(&ErrorCode::name(), ErrorCode::schema());
    add(&Done::name(), Done::schema());
    add(&ExecuteBody::name(), ExecuteBody::schema());
    add(&DetachedBody::name(), DetachedBody::schema());
    add(&RuntimeEvent::name(), RuntimeEvent::schema());
    add(&EventBody::name(), EventBody::schema());
    add(&EventKinds::name(), EventKinds::schema());
    add(&api::SandboxId::name(), api::SandboxId::schema());
    add(&api::ExecutionId::name(), api::ExecutionId::schema());
    add(&api::RunId::name(), api::RunId::schema());
    components
}

fn describe(operation: &Operation, access: Access) -> Value {
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag.name()],
        "summary": operation.summary,
    });
    if !operation.description.is_empty() {
        described["description"] = json!(operation.description);
    }
    if !operation.parameters.is_empty() {
        described["parameters"] = operation.parameters.iter().map(|parameter| parameter.document()).collect();
    }
    if let Some(body) = &operation.body {
        let description = match body.content.is_json() {
            true => format!("{} {UNKNOWN_FIELDS}", body.description),
            false => body.description.to_owned(),
        };
        described["requestBody"] = json!({
            "description": description,
            "content": { body.content.media_type: body.content.document() },
        });
        if body.required {
            described["requestBody"]["required"] = json!(true);
        }
    }
    match access {
        Access::Open => described["security"] = json!([]),
        Access::Key { scope, .. } | Access::Token { scope, .. } => {
            described["x-scope"] = json!(scope.as_str());
        }
    }
    described["responses"] = responses(operation, access);
    described
}

fn responses(operation: &Operation, access: Access) -> Value {
    let mut responses = Map::new();
    for response in &operation.responses {
        let contents = response.contents.iter();
        let content: Map<String, Value> =
            contents.map(|content| (content.media_type.to_owned(), content.document())).collect();
        let mut described = json!({ "description": response.description });
        if !content.is_empty() {
            described["content"] = content.into();
        }
        for (name, description) in &response.headers {
            described["headers"][name] =
                json!({ "description": description, "schema": { "type": "string" } });
        }
        responses.insert(response.status.as_u16().to_string(), described);
    }
    for (status, description) in errors(operation, access) {
        let schema = json!({ "$ref": "#/components/schemas/ErrorBody" });
        let described =
            json!({ "description": description, "content": { "application/json": { "schema": schema } } });
        responses.insert(status.to_string(), described);
    }
    let has_fields = operation.body.as_ref().is_some_and(|body| body.content.is_json());
    for (status, response) in &mut responses {
        for name in ["X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"] {
            response["headers"][name] = json!({ "$ref": format!("#/components/headers/{name}") });
        }
        if has_fields && status.starts_with('2') {
            response["headers"][IGNORED_FIELDS] =
                json!({ "$ref": format!("#/components/headers/{IGNORED_FIELDS}") });
        }
        if matches!(status.as_str(), "429" | "503") {
            response["headers"]["Retry-After"] = json!({ "$ref": "#/components/headers/Retry-After" });
        }
    }
    responses.into()
}

/// The endpoint's own errors and the general ones. A general error gives way to one of the same status and code that the endpoint
/// declares.
fn all_errors(operation: &Operation, access: Access) -> Vec<DocumentedError> {
    let mut all = operation.errors.clone();
    let mut general = GENERAL.to_vec();
    if access != Access::Open {
        general.extend(KEYED);
    }
    if operation.body.is_some() {
        general.push(TOO_SLOW);
    }
    for error in general {
        if !all.iter().any(|own| own.status() == error.status() && own.code == error.code) {
            all.push(error);
        }
    }
    all
}

/// A sentence for each error, by status.
fn errors(operation: &Operation, access: Access) -> BTreeMap<u16, String> {
    let mut sentences: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for error in all_errors(operation, access) {
        let descriptions = sentences.entry(error.status()).or_default();
        descriptions.push(format!("{}: `{}`.", error.when, error.code));
    }
    if let Some(size) = operation.body.as_ref().and_then(|body| body.most).map(size) {
        let descriptions = sentences.entry(StatusCode::PAYLOAD_TOO_LARGE.as_u16()).or_default();
        descriptions.push(format!("The body is larger than {size}: `INVALID_REQUEST`."));
    }
    for status in [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE] {
        if let Some(descriptions) = sentences.get_mut(&status.as_u16()) {
            descriptions.push("`Retry-After` is the number of seconds to wait.".to_owned());
        }
    }
    sentences.into_iter().map(|(status, descriptions)| (status, descriptions.join(" "))).collect()
}

/// Whether the document says that the endpoint may answer with this error.
#[cfg(test)]
pub fn documents(endpoint: &Endpoint, status: StatusCode, code: ErrorCode) -> bool {
    let Some(operation) = &endpoint.operation else { return true };
    let is_bounded = operation.body.as_ref().is_some_and(|body| body.most.is_some());
    let too_large =
        is_bounded && status == StatusCode::PAYLOAD_TOO_LARGE && code == ErrorCode::InvalidRequest;
    let errors = all_errors(operation, endpoint.access);
    too_large || errors.iter().any(|error| error.status() == status.as_u16() && error.code == code)
}

fn size(bytes: usize) -> String {
    const MIB: usize = 1 << 20;
    if bytes >= MIB { format!("{} MiB", bytes / MIB) } else { format!("{} KiB", bytes >> 10) }
}

fn headers() -> Value {
    let integer = json!({ "type": "integer", "minimum": 0 });
    json!({
        "X-Request-Id": {
            "description": "Identifies the request: the `X-Request-Id` that the client sent if it was \
             well-formed, otherwise a generated one.",
            "required": true,
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$" },
        },
        "X-RateLimit-Limit": {
            "description": "Requests allowed in any 60 seconds, by the limit that is closest to exhaustion among those \
             that this request counted against.",
            "required": true,
            "schema": integer,
        },
        "X-RateLimit-Remaining": {
            "description": "Requests left in the current window.",
            "required": true,
            "schema": integer,
        },
        "X-RateLimit-Reset": {
            "description": "Unix time in seconds at which the oldest counted request leaves the window.",
            "required": true,
            "schema": integer,
        },
        "Retry-After": {
            "description": "Seconds to wait before the next attempt.",
            "required": true,
            "schema": { "type": "integer", "minimum": 1 },
        },
        IGNORED_FIELDS: {
            "description": "Paths of the fields of the request body that were ignored because they are unknown, separated by \
             commas. `...` stands for further ones. Absent if no field was ignored.",
            "schema": { "type": "string" },
            "example": "colour, [1].priority",
        },
    })
}
