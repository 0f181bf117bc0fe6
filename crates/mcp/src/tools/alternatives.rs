//! The arguments and the output of a tool with actions, as one object.
//!
//! In Rust they are an enum, whose schema has `oneOf` or `anyOf` at its root. Hosts refuse that: the root must be an object. So the
//! alternatives become one object that has the properties of all, and the descriptions say which property belongs to which action.

use serde_json::{Map, Value, json};

/// The property that chooses among alternatives.
pub const ACTION: &str = "action";

type Object = Map<String, Value>;

/// A property in one of the alternatives.
struct Use<'a> {
    /// The action, if there are actions.
    action: Option<&'a str>,
    required: bool,
    schema: &'a Object,
}

impl Use<'_> {
    fn description(&self) -> &str {
        self.schema.get("description").and_then(Value::as_str).unwrap_or_default()
    }

    /// The schema without its description.
    fn constraints(&self) -> Object {
        let mut schema = self.schema.clone();
        schema.remove("description");
        schema
    }
}

/// The schema with its alternatives as one object. A schema without alternatives stays as it is.
pub fn flat(mut schema: Object) -> Object {
    let Some(Value::Array(alternatives)) = schema.remove("oneOf").or_else(|| schema.remove("anyOf")) else {
        return schema;
    };
    let alternatives: Vec<Object> =
        alternatives.into_iter().filter_map(|item| item.as_object().cloned()).collect();
    let mut names: Vec<&str> = Vec::new();
    for name in alternatives.iter().flat_map(properties).map(|(name, _)| name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let mut merged = Object::new();
    for name in &names {
        let property = if *name == ACTION && action(alternatives.first()).is_some() {
            choice(&alternatives)
        } else {
            property(&uses(&alternatives, name), alternatives.len())
        };
        merged.insert((*name).to_owned(), property);
    }
    let required: Vec<&str> =
        names.into_iter().filter(|name| alternatives.iter().all(|item| requires(item, name))).collect();
    schema.insert("required".to_owned(), json!(required));
    schema.insert("type".to_owned(), "object".into());
    if alternatives.iter().all(|item| item.get("additionalProperties") == Some(&Value::Bool(false))) {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema.insert("properties".to_owned(), merged.into());
    schema
}

fn properties(alternative: &Object) -> impl Iterator<Item = (&str, &Object)> {
    let properties = alternative.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().filter_map(|(name, schema)| Some((name.as_str(), schema.as_object()?)))
}

fn requires(alternative: &Object, name: &str) -> bool {
    let required = alternative.get("required").and_then(Value::as_array);
    required.is_some_and(|names| names.iter().any(|required| required.as_str() == Some(name)))
}

/// The action that chooses this alternative.
fn action(alternative: Option<&Object>) -> Option<&str> {
    let (_, schema) = properties(alternative?).find(|(name, _)| *name == ACTION)?;
    schema.get("const")?.as_str()
}

/// The property that chooses an action, with what each does.
fn choice(alternatives: &[Object]) -> Value {
    let actions: Vec<&str> = alternatives.iter().filter_map(|item| action(Some(item))).collect();
    let described = |item: &Object| {
        let description = item.get("description").and_then(Value::as_str).unwrap_or_default();
        Some(format!("{}: {description}", action(Some(item))?))
    };
    let descriptions: Vec<String> = alternatives.iter().filter_map(described).collect();
    json!({"type": "string", "enum": actions, "description": descriptions.join("\n")})
}

fn uses<'a>(alternatives: &'a [Object], name: &str) -> Vec<Use<'a>> {
    let found = |item: &'a Object| {
        let (_, schema) = properties(item).find(|(property, _)| *property == name)?;
        Some(Use { action: action(Some(item)), required: requires(item, name), schema })
    };
    alternatives.iter().filter_map(found).collect()
}

/// The property that allows what any of its uses allows.
fn property(uses: &[Use<'_>], alternatives: usize) -> Value {
    let mut constraints: Vec<Object> = Vec::new();
    for schema in uses.iter().map(Use::constraints) {
        if !constraints.contains(&schema) {
            constraints.push(schema);
        }
    }
    let mut property = match <[Object; 1]>::try_from(constraints) {
        Ok([only]) => only,
        Err(several) => Object::from_iter([("anyOf".to_owned(), json!(several))]),
    };
    let description = description(uses, alternatives);
    if !description.is_empty() {
        property.insert("description".to_owned(), description.into());
    }
    property.into()
}

/// What a property is, and for which actions. Outputs have no actions: their first description is enough.
fn description(uses: &[Use<'_>], alternatives: usize) -> String {
    let Some(first) = uses.first() else { return String::new() };
    let alike = |one: &Use<'_>, other: &Use<'_>| {
        one.description() == other.description() && one.required == other.required
    };
    let is_common = uses.len() == alternatives && uses.iter().all(|item| alike(first, item));
    if first.action.is_none() || is_common {
        return first.description().to_owned();
    }
    let mut sentences = Vec::new();
    for (index, item) in uses.iter().enumerate() {
        if uses.iter().take(index).any(|earlier| alike(earlier, item)) {
            continue;
        }
        let actions: Vec<&str> =
            uses.iter().filter(|other| alike(item, other)).filter_map(|other| other.action).collect();
        let required = if item.required { ", required" } else { "" };
        sentences.push(format!("For {}{required}: {}", actions.join(" and "), item.description()));
    }
    sentences.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flattened(schema: &Value) -> Value {
        flat(schema.as_object().unwrap().clone()).into()
    }

    #[test]
    fn actions_become_one_object_that_says_what_belongs_to_which() {
        let id = json!({"type": "string", "description": "The thing."});
        let schema = flattened(&json!({"oneOf": [
            {"type": "object", "description": "Show all.", "additionalProperties": false, "required": ["action"],
             "properties": {"action": {"type": "string", "const": "list"},
                            "name": {"type": "string", "description": "Only these."}}},
            {"type": "object", "description": "Make one.", "additionalProperties": false, "required": ["action", "name"],
             "properties": {"action": {"type": "string", "const": "make"},
                            "name": {"type": "string", "description": "Its name."}, "id": id}},
            {"type": "object", "description": "End one.", "additionalProperties": false, "required": ["action", "id"],
             "properties": {"action": {"type": "string", "const": "end"}, "id": id}},
        ]}));
        let expected = json!({
            "type": "object",
            "additionalProperties": false,
            "required": ["action"],
            "properties": {
                "action": {"type": "string", "enum": ["list", "make", "end"],
                           "description": "list: Show all.\nmake: Make one.\nend: End one."},
                "name": {"type": "string", "description": "For list: Only these.\nFor make, required: Its name."},
                "id": {"type": "string", "description": "For make: The thing.\nFor end, required: The thing."},
            }
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn outputs_require_only_what_all_have_and_allow_what_any_allows() {
        let schema = flattened(&json!({"anyOf": [
            {"type": "object", "required": ["id", "count"],
             "properties": {"id": {"type": "string", "description": "One."}, "count": {"type": "integer"}}},
            {"type": "object", "required": ["id"],
             "properties": {"id": {"type": "string", "description": "Another."}, "count": {"type": "string"}}},
        ]}));
        let count = json!({"anyOf": [{"type": "integer"}, {"type": "string"}]});
        let expected = json!({
            "type": "object", "required": ["id"],
            "properties": {"id": {"type": "string", "description": "One."}, "count": count}
        });
        assert_eq!(schema, expected);
    }

    #[test]
    fn a_schema_without_alternatives_stays() {
        let schema = json!({"type": "object", "properties": {}});
        assert_eq!(flattened(&schema), schema);
    }
}
