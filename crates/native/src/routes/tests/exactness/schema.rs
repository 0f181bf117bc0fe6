//! Decides whether a schema of the document allows a value. It knows the keywords that the document has for requests, and panics
//! at others.

use std::collections::BTreeMap;
use std::sync::Mutex;

use regex::Regex;
use serde_json::{Map, Value};

/// Keywords that say nothing about a value.
const NOTES: [&str; 6] = ["default", "description", "example", "examples", "format", "title"];

/// The document, to which references refer.
pub struct Schemas<'a>(pub &'a Value);

impl<'a> Schemas<'a> {
    /// The schema that a reference names.
    pub fn named(&self, reference: &str) -> &'a Value {
        let pointer = reference.strip_prefix('#').unwrap();
        self.0.pointer(pointer).unwrap_or_else(|| panic!("{reference} leads nowhere"))
    }

    /// The schema behind a reference, or the schema itself.
    pub fn resolved(&self, schema: &'a Value) -> &'a Value {
        schema.get("$ref").map_or(schema, |reference| self.named(reference.as_str().unwrap()))
    }

    pub fn allows(&self, schema: &Value, value: &Value) -> bool {
        let Some(keywords) = schema.as_object() else { return schema == &Value::Bool(true) };
        let mut named = keywords.iter().filter(|(keyword, _)| !NOTES.contains(&keyword.as_str()));
        named.all(|(keyword, limit)| self.keeps(keyword, limit, keywords, value))
    }

    /// Whether a value keeps one keyword. Keywords for other types than that of the value do not apply.
    fn keeps(&self, keyword: &str, limit: &Value, beside: &Map<String, Value>, value: &Value) -> bool {
        let schemas = || limit.as_array().unwrap().iter();
        match keyword {
            "$ref" => self.allows(self.named(limit.as_str().unwrap()), value),
            "oneOf" => schemas().filter(|schema| self.allows(schema, value)).count() == 1,
            "not" => !self.allows(limit, value),
            "enum" => schemas().any(|known| known == value),
            "type" => is_a(limit.as_str().unwrap(), value),
            "minimum" => value.as_f64().is_none_or(|number| number >= limit.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= limit.as_f64().unwrap()),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() >= size(limit)),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() <= size(limit)),
            "pattern" => value.as_str().is_none_or(|text| matches(limit.as_str().unwrap(), text)),
            "minItems" => value.as_array().is_none_or(|items| items.len() >= size(limit)),
            "maxItems" => value.as_array().is_none_or(|items| items.len() <= size(limit)),
            "items" => value.as_array().is_none_or(|items| items.iter().all(|item| self.allows(limit, item))),
            _ => value.as_object().is_none_or(|object| self.keeps_fields(keyword, limit, beside, object)),
        }
    }

    /// Whether an object keeps a keyword for objects.
    fn keeps_fields(
        &self,
        keyword: &str,
        limit: &Value,
        beside: &Map<String, Value>,
        object: &Map<String, Value>,
    ) -> bool {
        let has_all = |names: &Value| {
            names.as_array().unwrap().iter().all(|name| object.contains_key(name.as_str().unwrap()))
        };
        match keyword {
            "required" => has_all(limit),
            "dependentRequired" => limit
                .as_object()
                .unwrap()
                .iter()
                .all(|(name, others)| !object.contains_key(name) || has_all(others)),
            "maxProperties" => object.len() <= size(limit),
            "propertyNames" => object.keys().all(|name| self.allows(limit, &Value::from(name.as_str()))),
            "properties" => {
                let known = |name: &String| limit.get(name.as_str());
                object.iter().all(|(name, field)| known(name).is_none_or(|schema| self.allows(schema, field)))
            }
            "additionalProperties" => {
                let is_known = |name: &String| {
                    beside.get("properties").is_some_and(|all| all.get(name.as_str()).is_some())
                };
                object.iter().all(|(name, field)| is_known(name) || self.allows(limit, field))
            }
            other => panic!("this test does not know the keyword {other}"),
        }
    }
}

fn size(limit: &Value) -> usize {
    usize::try_from(limit.as_u64().unwrap()).unwrap()
}

fn is_a(kind: &str, value: &Value) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("this test does not know the type {other}"),
    }
}

/// The compiled expression of a pattern. Some take milliseconds to compile, and are applied to many texts.
fn expression(pattern: &str) -> Regex {
    static COMPILED: Mutex<BTreeMap<String, Regex>> = Mutex::new(BTreeMap::new());
    let compile = || Regex::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    COMPILED.lock().unwrap().entry(pattern.to_owned()).or_insert_with(compile).clone()
}

/// Whether a text matches a pattern of the document. What it excludes is a negative lookahead at its start, which the regular
/// expressions of this crate lack: it becomes a pattern of its own.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some(rest) = pattern.strip_prefix("^(?!") else { return expression(pattern).is_match(text) };
    let mut depth = 1;
    let end = rest.find(|char| {
        depth += i32::from(char == '(') - i32::from(char == ')');
        depth == 0
    });
    let (excluded, rest) = rest.split_at(end.unwrap());
    !expression(&format!("^({excluded})")).is_match(text)
        && expression(&format!("^{}", &rest[1..])).is_match(text)
}

#[test]
fn schemas_are_read_as_their_standard_says() {
    let document = serde_json::json!({ "two": { "type": "integer", "minimum": 2, "maximum": 3 } });
    let schemas = Schemas(&document);
    let object = serde_json::json!({
        "type": "object",
        "required": ["a"],
        "properties": { "a": { "$ref": "#/two" }, "b": { "type": "string", "maxLength": 1 } },
        "additionalProperties": false,
        "dependentRequired": { "b": ["c"] },
    });
    for (value, is_allowed) in [
        (serde_json::json!({ "a": 2 }), true),
        (serde_json::json!({ "a": 2.0 }), true),
        (serde_json::json!({ "a": 2.5 }), false),
        (serde_json::json!({ "a": 4 }), false),
        (serde_json::json!({}), false),
        (serde_json::json!({ "a": 2, "b": "x" }), false),
        (serde_json::json!({ "a": 2, "c": 1 }), false),
        (serde_json::json!([]), false),
    ] {
        assert_eq!(schemas.allows(&object, &value), is_allowed, "{value}");
    }
    assert!(matches("^(?!a(b|c)$)[a-z]+$", "abx") && !matches("^(?!a(b|c)$)[a-z]+$", "ac"));
}
