//! Completes the document of the interface: what holds for every operation is said here once, and not at each handler.
//!
//! Called by `routes`, which brings what the handlers say of themselves. Errors, headers and keys are added to it. Cannot fail:
//! the document is made of our own constants, and tests read it.

use rules::Scope;
use serde_json::{Map, Value, json};

const SECURITY_SCHEME: &str = "apiKey";

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    Scope(Scope),
}

/// Errors of every operation.
const ANY: [(&str, &str); 4] = [
    ("400", "The request cannot be read: `INVALID_REQUEST`."),
    ("431", "The headers are too large or too many: `INVALID_REQUEST`."),
    ("500", "An unexpected fault of the server: `INTERNAL_ERROR`."),
    ("503", "No capacity at the moment: `RESOURCE_EXHAUSTED`. `Retry-After` says when to try again."),
];

/// The error of every operation with a body.
const TOO_SLOW: &str = "The body came too slowly: `INVALID_REQUEST`.";

/// Errors of every operation that needs a key.
const KEYED: [(&str, &str); 3] = [
    ("401", "The API key is missing or not valid: `UNAUTHORIZED`."),
    ("403", "The key lacks the scope for this: `FORBIDDEN`."),
    ("429", "A limit is reached: `RATE_LIMITED`. `Retry-After` says when to try again."),
];

/// The document as text, with a line's end. `needs` tells of a method and a path what they need.
pub fn complete(interface: utoipa::openapi::OpenApi, needs: fn(&str, &str) -> Needs) -> String {
    let mut document = serde_json::to_value(interface).unwrap_or_default();
    document["security"] = json!([{ SECURITY_SCHEME: [] }]);
    document["components"]["securitySchemes"] = json!({ SECURITY_SCHEME: {
        "type": "http", "scheme": "bearer", "description": "A key of `sandboxd key create`: `Authorization: Bearer sbk_...`."
    } });
    document["components"]["headers"] = headers();
    if let Some(paths) = document["paths"].as_object_mut() {
        for (path, operations) in paths {
            for (method, operation) in operations.as_object_mut().into_iter().flatten() {
                complete_operation(operation, needs(&method.to_ascii_uppercase(), path));
            }
        }
    }
    format!("{document:#}\n")
}

fn complete_operation(operation: &mut Value, needs: Needs) {
    let mut general = ANY.to_vec();
    match needs {
        Needs::Nothing => operation["security"] = json!([]),
        Needs::Scope(scope) => {
            operation["x-scope"] = json!(scope.as_str());
            general.extend(KEYED);
        }
    }
    if !operation["requestBody"].is_null() {
        general.push(("408", TOO_SLOW));
    }
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (status, description) in general {
        responses.entry(status).or_insert_with(|| json!({ "description": description }));
    }
    for (status, response) in responses {
        complete_response(status, response);
    }
}

fn complete_response(status: &str, response: &mut Value) {
    if status.starts_with(['4', '5']) {
        response["content"] =
            json!({ "application/json": { "schema": { "$ref": "#/components/schemas/ErrorBody" } } });
    }
    let mut names = vec!["X-Request-Id", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"];
    if matches!(status, "429" | "503") {
        names.push("Retry-After");
    }
    if response["headers"].is_null() {
        response["headers"] = Value::Object(Map::new());
    }
    for name in names {
        response["headers"][name] = json!({ "$ref": format!("#/components/headers/{name}") });
    }
}

fn headers() -> Value {
    let integer = json!({ "type": "integer", "minimum": 0 });
    json!({
        "X-Request-Id": {
            "description": "Names this request: your own `X-Request-Id` if it was well-formed, else one of ours.",
            "required": true,
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9._:-]{1,128}$" },
        },
        "X-RateLimit-Limit": {
            "description": "How many requests any 60 seconds may have, by the limit that is nearest to its end among those this request counted against.",
            "required": true,
            "schema": integer,
        },
        "X-RateLimit-Remaining": {
            "description": "How many more there may be now.",
            "required": true,
            "schema": integer,
        },
        "X-RateLimit-Reset": {
            "description": "When there will be more, in Unix seconds.",
            "required": true,
            "schema": integer,
        },
        "Retry-After": {
            "description": "Seconds to wait before another try.",
            "required": true,
            "schema": { "type": "integer", "minimum": 1 },
        },
    })
}
