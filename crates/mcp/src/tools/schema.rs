//! The definition of a tool, derived from the types of its arguments and its output.

use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use sandboxd_client::{ExecutionState, Isolation, TemplateState};
use schemars::generate::SchemaSettings;
use schemars::transform::transform_subschemas;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use super::{Declared, alternatives};

/// What a tool does to its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// It only reads.
    Reads,
    /// It adds something and destroys nothing.
    Adds,
    /// It replaces what it names: the same call again changes nothing more.
    Replaces,
    /// It can destroy what the account stores.
    Destroys,
    /// It runs what the model wrote, which can destroy anything in a sandbox and reach hosts in the network.
    Runs,
}

impl Effect {
    fn annotations(self, title: &str) -> ToolAnnotations {
        let (destructive, idempotent, open_world) = match self {
            Self::Reads => (false, true, false),
            Self::Adds => (false, false, true),
            Self::Replaces => (true, true, false),
            Self::Destroys => (true, false, false),
            Self::Runs => (true, false, true),
        };
        ToolAnnotations::with_title(title)
            .read_only(self == Self::Reads)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world)
    }
}

/// The definition of a tool, as `tools/list` has it.
pub fn tool<T: Declared>() -> Tool {
    let settings = SchemaSettings::draft2020_12;
    let mut input = object::<T>(settings().for_deserialize());
    let description = match input.remove("description") {
        Some(Value::String(description)) => description,
        _ => String::new(),
    };
    let mut output = object::<T::Output>(settings().for_serialize());
    output.remove("description");
    Tool::new(T::NAME, description, Arc::new(input))
        .with_title(T::TITLE)
        .with_raw_output_schema(Arc::new(output))
        .with_annotations(T::EFFECT.annotations(T::TITLE))
}

/// The schema of a type, without references: not every host follows them.
fn object<T: JsonSchema>(settings: SchemaSettings) -> JsonObject {
    let settings = settings.with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.with_transform(plain).into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    match schema.to_value() {
        Value::Object(schema) => alternatives::flat(schema),
        _ => JsonObject::new(),
    }
}

/// Removes what only Rust needs to know: the widths of integers, and that an absent value may be null.
fn plain(schema: &mut Schema) {
    if let Some(object) = schema.as_object_mut() {
        object.remove("format");
        if object.get("default").is_some_and(Value::is_null) {
            object.remove("default");
        }
        if let Some(Value::Array(values)) = object.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
        if let Some(types) = object.get_mut("type") {
            without_null(types);
        }
        if let Some(Value::String(text)) = object.get_mut("description") {
            // The lines of a comment are those of a file.
            *text = text.replace('\n', " ");
        }
    }
    transform_subschemas(&mut plain, schema);
}

fn without_null(types: &mut Value) {
    let Value::Array(names) = &*types else { return };
    let mut names: Vec<Value> = names.iter().filter(|name| name.as_str() != Some("null")).cloned().collect();
    *types = if names.len() == 1 { names.remove(0) } else { Value::Array(names) };
}

/// The schema of a text that is one of these.
pub fn one_of<'a>(names: impl IntoIterator<Item = &'a str>) -> Schema {
    let mut schema = Schema::default();
    schema.insert("type".to_owned(), "string".into());
    schema.insert("enum".to_owned(), names.into_iter().collect::<Value>());
    schema
}

/// The schema of [`IsolationChoice`](sandboxd_client::IsolationChoice).
pub fn isolation_choice(_: &mut SchemaGenerator) -> Schema {
    one_of(["auto"].into_iter().chain(Isolation::ALL.map(Isolation::name)))
}

/// The schema of [`ExecutionState`].
pub fn execution_state(_: &mut SchemaGenerator) -> Schema {
    one_of(ExecutionState::ALL.iter().map(|state| state.as_str()))
}

/// The schema of [`TemplateState`].
pub fn template_state(_: &mut SchemaGenerator) -> Schema {
    one_of(TemplateState::ALL.map(TemplateState::name))
}

/// The schema of [`FileType`](sandboxd_client::FileType).
pub fn file_type(_: &mut SchemaGenerator) -> Schema {
    one_of(["file", "directory", "symlink", "other"])
}

/// The pattern of the ids that begin with this prefix.
pub fn id_pattern(prefix: &str) -> String {
    format!("^{prefix}[0-9a-z]+$")
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::json;

    use super::*;

    /// A description
    /// of two lines.
    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Sample {
        /// A number.
        #[schemars(range(min = 1, max = 5))]
        number: Option<u64>,
        #[serde(default)]
        #[schemars(schema_with = "isolation_choice")]
        choice: Option<String>,
        inner: InnerSample,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    struct InnerSample {
        #[schemars(length(max = 3), inner(length(min = 1)))]
        texts: Option<Vec<String>>,
    }

    #[test]
    fn a_schema_is_one_plain_object() {
        let schema = object::<Sample>(SchemaSettings::draft2020_12().for_deserialize());
        let texts = json!({"type": "array", "maxItems": 3, "items": {"type": "string", "minLength": 1}});
        let expected = json!({
            "type": "object",
            "description": "A description of two lines.",
            "additionalProperties": false,
            "required": ["inner"],
            "properties": {
                "number": {"type": "integer", "minimum": 1, "maximum": 5, "description": "A number."},
                "choice": {"type": "string", "enum": ["auto", "container", "gvisor"]},
                "inner": {"type": "object", "properties": {"texts": texts}}
            }
        });
        assert_eq!(Value::Object(schema), expected);
    }

    #[test]
    fn only_a_tool_that_reads_is_read_only() {
        for effect in [Effect::Reads, Effect::Adds, Effect::Replaces, Effect::Destroys, Effect::Runs] {
            let hints = effect.annotations("A tool");
            assert_eq!(hints.read_only_hint, Some(effect == Effect::Reads));
            let destroys = !matches!(effect, Effect::Reads | Effect::Adds);
            assert_eq!(hints.destructive_hint, Some(destroys), "{effect:?}");
        }
    }
}
