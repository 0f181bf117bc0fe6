//! Values at the bounds of a schema: just inside, and just outside.

use serde_json::{Map, Value, json};

use super::schema::Schemas;

/// Characters that some fields refuse.
const CHARACTERS: [char; 13] = ['\0', '\u{1}', '\n', '\u{7f}', ' ', ':', '=', '/', '.', '-', 'A', '0', 'ä'];
/// Texts of which one fits most patterns.
const TEXTS: [&str; 7] =
    ["a", "/a", "644", "aaaaaaaaaa", "192.0.2.1", "2026-01-02T03:04:05Z", "ev_0000000000000042"];
/// Of other types than any field, or than all but one.
const WRONG: [fn() -> Value; 5] =
    [|| Value::Null, || json!(true), || json!(1.5), || json!("a"), || json!([7])];

impl<'a> Schemas<'a> {
    /// A value that the schema allows, as small as possible.
    pub fn smallest(&self, schema: &'a Value) -> Value {
        let schema = self.resolved(schema);
        if let Some(all) = schema.get("oneOf") {
            return self.smallest(&all[0]);
        }
        if let Some(known) = schema.get("enum") {
            return known[0].clone();
        }
        match schema["type"].as_str().unwrap() {
            "integer" => schema.get("minimum").cloned().unwrap_or_else(|| json!(0)),
            "boolean" => json!(false),
            "array" => json!([]),
            "string" => self.text(schema),
            _ => {
                let properties = &schema["properties"];
                let none = Value::Object(Map::new());
                names(&schema["required"])
                    .fold(none, |object, name| with(&object, name, self.smallest(&properties[name])))
            }
        }
    }

    fn text(&self, schema: &Value) -> Value {
        let examples = schema.get("examples").and_then(Value::as_array).into_iter().flatten();
        let given = schema.get("example").into_iter().chain(examples).cloned();
        let mut texts = TEXTS.iter().map(|text| json!(text)).chain(given);
        texts.find(|text| self.allows(schema, text)).unwrap_or_else(|| panic!("no text fits {schema}"))
    }

    /// Values around the bounds of a schema. Some are allowed and some are not.
    pub fn bounds(&self, schema: &'a Value) -> Vec<Value> {
        let (beside, schema) = (schema, self.resolved(schema));
        let mut values: Vec<Value> = WRONG.iter().map(|make| make()).collect();
        if let Some(all) = schema.get("oneOf") {
            values.extend(all.as_array().unwrap().iter().flat_map(|one| self.bounds(one)));
            return values;
        }
        if let Some(known) = schema.get("enum") {
            values.extend(known.as_array().unwrap().iter().cloned());
            return values;
        }
        match schema["type"].as_str().unwrap() {
            "integer" => {
                for (bound, outside) in [("minimum", -1), ("maximum", 1)] {
                    let Some(bound) = schema.get(bound).and_then(Value::as_i64) else { continue };
                    values.extend([json!(bound), json!(bound + outside)]);
                }
            }
            "string" => values.extend(self.texts(schema).into_iter().map(Value::from)),
            "array" => values.extend(self.arrays(schema)),
            "object" => values.extend(self.objects(schema, beside)),
            _ => {}
        }
        values
    }

    fn texts(&self, schema: &Value) -> Vec<String> {
        let smallest = self.text(schema).as_str().unwrap().to_owned();
        let most =
            schema.get("maxLength").and_then(Value::as_u64).map_or(0, |most| usize::try_from(most).unwrap());
        let mut texts = vec![String::new()];
        // Parts of paths and names have bounds of their own.
        for length in [63, 64, 100, 101, 128, 129, 253, 254, 255, 256, most, most + 1] {
            let missing = length.saturating_sub(smallest.chars().count());
            texts.extend([
                format!("{smallest}{}", "a".repeat(missing)),
                smallest.chars().cycle().take(length).collect(),
            ]);
        }
        for char in CHARACTERS {
            let (start, end) = smallest.split_at(smallest.len() / 2);
            texts.extend([
                char.to_string(),
                format!("{char}{smallest}"),
                format!("{smallest}{char}"),
                format!("{start}{char}{end}"),
            ]);
        }
        texts.extend(
            ["snap_aaaaaaaa", "tpl_a", "sb_a", "..", "a/..", "*.a", "a..a", "192.0.2.1/33", "192.0.2.1/08"]
                .map(str::to_owned),
        );
        texts
    }

    fn arrays(&self, schema: &'a Value) -> Vec<Value> {
        let items = &schema["items"];
        let small = self.smallest(items);
        let most = schema.get("maxItems").and_then(Value::as_u64).unwrap_or(1);
        let repeated = |count: u64| -> Value { (0..count).map(|_| small.clone()).collect() };
        let bounds = self.bounds(items).into_iter().map(|item| json!([item]));
        [repeated(0), repeated(1), repeated(most), repeated(most + 1)].into_iter().chain(bounds).collect()
    }

    /// Objects with one field at a bound, with one field missing, and with every pair of fields. `beside` has the keywords for fields
    /// that go together.
    fn objects(&self, schema: &'a Value, beside: &'a Value) -> Vec<Value> {
        let field = |name: &str| self.smallest(&schema["properties"][name]);
        let base = self.smallest(schema);
        let base =
            names(&beside["oneOf"][0]["required"]).fold(base, |base, name| with(&base, name, field(name)));
        let mut objects = vec![base.clone()];
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let own = names(&beside["dependentRequired"][name])
                .fold(base.clone(), |own, other| with(&own, other, field(other)));
            objects.extend(self.bounds(property).into_iter().map(|value| with(&own, name, value)));
            objects.push(without(&base, name));
            let one = with(&base, name, self.smallest(property));
            objects
                .extend(properties.into_iter().flatten().map(|(other, _)| with(&one, other, field(other))));
        }
        if let Some(names) = schema.get("propertyNames") {
            objects.extend(self.maps(schema, names));
        }
        objects
    }

    /// Maps with names and values at their bounds, and as many as allowed.
    fn maps(&self, schema: &'a Value, names: &Value) -> Vec<Value> {
        let (value, name) = (&schema["additionalProperties"], self.text(names));
        let (small, empty) = (self.smallest(value), Value::Object(Map::new()));
        let mut maps: Vec<Value> =
            self.texts(names).iter().map(|name| with(&empty, name, small.clone())).collect();
        maps.extend(self.bounds(value).into_iter().map(|value| with(&empty, name.as_str().unwrap(), value)));
        let most = schema["maxProperties"].as_u64().unwrap();
        for count in [most, most + 1] {
            maps.push((0..count).map(|number| (format!("k{number}"), small.clone())).collect());
        }
        maps
    }
}

fn names(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().map(|name| name.as_str().unwrap())
}

fn with(object: &Value, name: &str, value: Value) -> Value {
    let mut changed = object.clone();
    changed[name] = value;
    changed
}

fn without(object: &Value, name: &str) -> Value {
    let mut changed = object.clone();
    changed.as_object_mut().unwrap().remove(name);
    changed
}
