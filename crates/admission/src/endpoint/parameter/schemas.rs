//! The schemas of parameters.

use api::bounds::{
    IDEMPOTENCY_KEY_CHARS, MAX_SAFE_INTEGER, PAGE_LIMIT, PATH_BYTES, PATH_PART_BYTES, PORT,
    SANDBOX_NAME_CHARS, SNAPSHOT_NAME_CHARS,
};
use serde_json::{Value, json};
use utoipa::{PartialSchema, ToSchema};

/// The schema of a type, written out in place.
pub fn inline<T: PartialSchema>() -> Value {
    json!(T::schema())
}

/// A reference to the schema of a type among the components.
pub fn reference<T: ToSchema>() -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", T::name()) })
}

/// A list of what a type describes.
pub fn list_of<T: ToSchema>() -> Value {
    json!({ "type": "array", "items": reference::<T>() })
}

pub fn text() -> Value {
    json!({ "type": "string" })
}

/// Without a type: some tools apply it to the text of the stream, some to each event.
pub fn events() -> Value {
    json!({ "description": "Server-Sent Events. Each has `event`, its kind, and `data`, a JSON object." })
}

/// The id of the last event that a client has received, or nothing.
pub fn last_event_id() -> Value {
    or_empty(&inline::<api::EventId>())
}

/// The offset after the last output that a client has received, or nothing.
pub fn last_output_offset() -> Value {
    or_empty(&inline::<api::OutputOffset>())
}

/// The id of the last event of a build's log that a client has received, or nothing.
pub fn last_log_event() -> Value {
    json!({ "type": "string", "pattern": "^([0-9]{1,18}|end)?$" })
}

/// A client that has received no event may send an empty header.
fn or_empty(schema: &Value) -> Value {
    let pattern = schema["pattern"].as_str().unwrap_or_default();
    let inner = pattern.trim_start_matches('^').trim_end_matches('$');
    json!({ "type": "string", "pattern": format!("^({inner})?$") })
}

pub fn sandbox() -> Value {
    let (id, more) = (api::SandboxId::PREFIX, SANDBOX_NAME_CHARS - 1);
    let name =
        json!({ "type": "string", "pattern": format!("^(?!{id})[A-Za-z0-9][A-Za-z0-9_.-]{{0,{more}}}$") });
    json!({ "anyOf": [reference::<api::SandboxId>(), name] })
}

pub fn snapshot() -> Value {
    let id = api::SnapshotId::PREFIX;
    let pattern = format!(r"^(?!{id})[^\x00-\x1f\x7f]+$");
    let name = json!({ "type": "string", "maxLength": SNAPSHOT_NAME_CHARS, "pattern": pattern });
    json!({ "anyOf": [reference::<api::SnapshotId>(), name] })
}

pub fn template() -> Value {
    let id = api::TemplateId::PREFIX;
    let pattern = format!(r"^(?!{id})[^\x00-\x1f\x7f]+$");
    json!({ "anyOf": [reference::<api::TemplateId>(), { "type": "string", "pattern": pattern }] })
}

pub fn boolean() -> Value {
    json!({ "type": "boolean" })
}

pub fn port() -> Value {
    json!({ "type": "integer", "format": "int32", "minimum": PORT.min, "maximum": PORT.max })
}

pub fn context_id() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": 100, "pattern": "^[A-Za-z0-9-]+$" })
}

pub fn limit() -> Value {
    json!({ "type": "integer", "format": "int32", "minimum": PAGE_LIMIT.min, "maximum": PAGE_LIMIT.max })
}

/// Up to the largest integer that every JSON client can hold.
pub fn offset() -> Value {
    json!({ "type": "integer", "format": "int64", "minimum": 0, "maximum": MAX_SAFE_INTEGER })
}

pub fn file_path() -> Value {
    path_matching("")
}

pub fn named_path() -> Value {
    path_matching(r"(?!([^\x00]*/)?\.{1,2}/*$|/*$)")
}

/// The pattern of a path after a condition for its start.
fn path_matching(condition: &str) -> Value {
    let part = format!(r"[^/\x00]{{0,{PATH_PART_BYTES}}}");
    let pattern = format!("^{condition}{part}(/{part})*$");
    json!({ "type": "string", "minLength": 1, "maxLength": PATH_BYTES, "pattern": pattern })
}

pub fn mode() -> Value {
    json!({ "type": "string", "pattern": "^[0-7]{3,4}$" })
}

pub fn idempotency_key() -> Value {
    json!({ "type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_CHARS, "pattern": r"^[\x21-\x7e]+$" })
}
