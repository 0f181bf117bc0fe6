//! Builds the definitions of tools.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

/// What a tool does to its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Reads,
    /// It adds something and destroys nothing.
    Adds,
    Destroys,
}

pub fn tool(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    effect: Effect,
    input: Value,
    output: Value,
) -> Tool {
    let annotations = ToolAnnotations::with_title(title)
        .read_only(effect == Effect::Reads)
        .destructive(effect == Effect::Destroys)
        .idempotent(false);
    Tool::new(name, description, object(input))
        .with_title(title)
        .with_raw_output_schema(object(output))
        .with_annotations(annotations)
}

/// The tool reaches nothing outside of the service.
pub fn closed_world(mut tool: Tool) -> Tool {
    tool.annotations = tool.annotations.map(|annotations| annotations.open_world(false));
    tool
}

/// A call with the same arguments changes nothing more.
pub fn idempotent(mut tool: Tool) -> Tool {
    tool.annotations = tool.annotations.map(|annotations| annotations.idempotent(true));
    tool
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(object) => Arc::new(object),
        _ => Arc::default(),
    }
}

/// An object schema that allows no other properties.
pub fn input(properties: Value, required: &[&str]) -> Value {
    let mut schema = output(properties, required);
    schema["additionalProperties"] = false.into();
    schema
}

pub fn output(properties: Value, required: &[&str]) -> Value {
    let mut schema = json!({"type": "object", "required": required});
    schema["properties"] = properties;
    schema
}

pub fn sandbox_id() -> Value {
    json!({
        "type": "string",
        "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$",
        "maxLength": 64,
        "description": "The sandbox, by its id or its name. Default: the sandbox of this session, which is created on first use."
    })
}

/// The id of an object whose ids have this prefix.
pub fn id(prefix: &str, description: &str) -> Value {
    json!({"type": "string", "pattern": format!("^{prefix}[0-9a-z]+$"), "maxLength": 64, "description": description})
}

pub fn integer(least: u64, most: u64, description: &str) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most, "description": description})
}

pub fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

pub fn text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

pub fn path(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 4096, "description": description})
}

/// Domains that sandboxes may reach.
pub fn domains(description: &str) -> Value {
    json!({
        "type": "array", "maxItems": 100, "items": {"type": "string", "minLength": 1, "maxLength": 253},
        "description": description
    })
}

/// A map of strings, such as environment variables.
pub fn env(description: &str) -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 100, "description": description})
}
