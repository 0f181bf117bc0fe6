//! Fields of an object by name and type. A field that is not there is `None`; one that is `null` has a wrong type.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rules::{ConfigError, Integer, shown, shown_name};
use serde_json::value::RawValue;

use crate::document::{self, Entries, Keep, Kind};
use crate::integer::integer;
use crate::{FieldFault, Refusal};

/// Characters of a number that a message shows.
const NUMBER_CHARS: usize = 40;

/// An object's fields that somebody asks for.
pub struct Fields<'a> {
    /// `resources.` before each name; nothing at the top.
    prefix: String,
    values: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    /// The body, which has to be an object.
    pub fn of_body(body: &'a [u8], names: &'static [&'static str]) -> Result<Self, Refusal> {
        Self::read("body", String::new(), document::parse(body)?, names)
    }

    fn read(
        field: &str,
        prefix: String,
        value: &'a RawValue,
        names: &'static [&'static str],
    ) -> Result<Self, Refusal> {
        expect(field, value, Kind::Object)?;
        let values = unique(field, &prefix, value, Keep::Named(names))?;
        Ok(Self { prefix, values })
    }

    /// The objects of a body that is one, or a list of them; each with what its value is.
    pub fn of_each(
        body: &'a [u8],
        names: &'static [&'static str],
        most: usize,
    ) -> Result<Vec<Self>, Refusal> {
        let value = document::parse(body)?;
        if Kind::of(value) != Kind::List {
            if Kind::of(value) != Kind::Object {
                return Err(FieldFault::new("body", describe(value), "an object or an array of them").into());
            }
            return Ok(vec![Self::read("body", String::new(), value, names)?]);
        }
        let Entries::Read(elements) = document::elements(value)? else { return Err(too_many("body")) };
        if elements.is_empty() || elements.len() > most {
            let got = format!("an array of {} entries", elements.len());
            return Err(ConfigError {
                field: "body".to_owned(),
                got,
                allowed: format!("1 to {most} of them"),
            }
            .into());
        }
        let read = |(index, value)| {
            let path = format!("[{index}]");
            Self::read(&path, format!("{path}."), value, names)
        };
        elements.into_iter().enumerate().map(read).collect()
    }

    /// An object as it is, of at most so many bytes.
    pub fn free(
        &self,
        name: &str,
        most: usize,
    ) -> Result<Option<serde_json::Map<String, serde_json::Value>>, Refusal> {
        let Some(value) = self.of_kind(name, Kind::Object)? else { return Ok(None) };
        let (path, text) = (self.path(name), value.get());
        if text.len() > most {
            let got = format!("{} bytes of JSON", text.len());
            return Err(ConfigError { field: path, got, allowed: format!("at most {most} bytes") }.into());
        }
        let read = serde_json::from_str(text);
        read.map(Some).map_err(|error| Refusal::malformed(format!("{path} cannot be read: {error}")))
    }

    /// A text that has to be one of a kind.
    pub fn parsed<T: std::str::FromStr>(&self, name: &str, allowed: &str) -> Result<Option<T>, Refusal> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let wrong = |_| FieldFault::new(self.path(name), describe_text(&text), allowed).into();
        text.parse().map(Some).map_err(wrong)
    }

    /// As [`Fields::parsed`], of a field that has to be there.
    pub fn required<T: std::str::FromStr>(&self, name: &str, allowed: &str) -> Result<T, Refusal> {
        let missing = || FieldFault::new(self.path(name), "missing", allowed).into();
        self.parsed(name, allowed)?.ok_or_else(missing)
    }

    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn of_kind(&self, name: &str, kind: Kind) -> Result<Option<&'a RawValue>, Refusal> {
        let Some(value) = self.values.get(name) else { return Ok(None) };
        expect(&self.path(name), value, kind)?;
        Ok(Some(value))
    }

    pub fn object(&self, name: &str, names: &'static [&'static str]) -> Result<Option<Self>, Refusal> {
        let Some(value) = self.values.get(name) else { return Ok(None) };
        let path = self.path(name);
        Self::read(&path, format!("{path}."), value, names).map(Some)
    }

    pub fn text(&self, name: &str) -> Result<Option<String>, Refusal> {
        self.of_kind(name, Kind::Text)?.map(|value| text_of(&self.path(name), value)).transpose()
    }

    pub fn required_text(&self, name: &str) -> Result<String, Refusal> {
        let missing = || FieldFault::new(self.path(name), "missing", allowed(Kind::Text)).into();
        self.text(name)?.ok_or_else(missing)
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>, Refusal> {
        Ok(self.of_kind(name, Kind::Boolean)?.map(|value| value.get().trim() == "true"))
    }

    pub fn integer(&self, name: &str) -> Result<Option<Integer>, Refusal> {
        self.values.get(name).map(|value| integer_of(&self.path(name), value)).transpose()
    }

    /// An object from text to text.
    pub fn map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, Refusal> {
        let Some(value) = self.of_kind(name, Kind::Object)? else { return Ok(None) };
        let prefix = format!("{}.", self.path(name));
        let entries = unique(&self.path(name), &prefix, value, Keep::All)?.into_iter().map(|(key, value)| {
            let path = || format!("{prefix}{}", shown_name(&key));
            let text = match Kind::of(value) {
                Kind::Text => text_of(&path(), value)?,
                _ => return Err(wrong_type(&path(), value, Kind::Text)),
            };
            Ok((key, text))
        });
        entries.collect::<Result<_, _>>().map(Some)
    }

    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>, Refusal> {
        self.list(name, |path, value| {
            expect(path, value, Kind::Text)?;
            text_of(path, value)
        })
    }

    pub fn integers(&self, name: &str) -> Result<Option<Vec<Integer>>, Refusal> {
        self.list(name, integer_of)
    }

    fn list<T>(
        &self,
        name: &str,
        read: impl Fn(&str, &RawValue) -> Result<T, Refusal>,
    ) -> Result<Option<Vec<T>>, Refusal> {
        let Some(value) = self.of_kind(name, Kind::List)? else { return Ok(None) };
        let path = self.path(name);
        let Entries::Read(elements) = document::elements(value)? else { return Err(too_many(&path)) };
        let read = |(index, value)| read(&format!("{path}[{index}]"), value);
        elements.into_iter().enumerate().map(read).collect::<Result<_, _>>().map(Some)
    }
}

/// The entries of an object, of which none may come twice: of two values nobody knows which was meant.
fn unique<'a>(
    field: &str,
    prefix: &str,
    value: &'a RawValue,
    keep: Keep,
) -> Result<BTreeMap<String, &'a RawValue>, Refusal> {
    let Entries::Read(entries) = document::entries(value, keep)? else { return Err(too_many(field)) };
    let mut values = BTreeMap::new();
    for (name, value) in entries {
        match values.entry(name) {
            Entry::Vacant(place) => {
                place.insert(value);
            }
            Entry::Occupied(first) => {
                let got = format!("given twice, as {} and as {}", describe(first.get()), describe(value));
                let path = format!("{prefix}{}", shown_name(first.key()));
                return Err(FieldFault::new(path, got, "one value").into());
            }
        }
    }
    Ok(values)
}

fn too_many(field: &str) -> Refusal {
    let most = document::most_entries();
    ConfigError {
        field: field.to_owned(),
        got: format!("of more than {most} entries"),
        allowed: "far fewer".to_owned(),
    }
    .into()
}

fn text_of(path: &str, value: &RawValue) -> Result<String, Refusal> {
    document::text(value).map_err(|refusal| Refusal::malformed(format!("{path} cannot be read: {refusal}")))
}

fn integer_of(path: &str, value: &RawValue) -> Result<Integer, Refusal> {
    let read = if Kind::of(value) == Kind::Number { integer(value.get().trim()) } else { None };
    read.ok_or_else(|| wrong_type(path, value, Kind::Number))
}

fn expect(path: &str, value: &RawValue, kind: Kind) -> Result<(), Refusal> {
    if Kind::of(value) == kind { Ok(()) } else { Err(wrong_type(path, value, kind)) }
}

fn wrong_type(path: &str, value: &RawValue, kind: Kind) -> Refusal {
    FieldFault::new(path, describe(value), allowed(kind)).into()
}

fn allowed(kind: Kind) -> &'static str {
    match kind {
        Kind::Null => "null",
        Kind::Boolean => "true or false",
        Kind::Number => "an integer",
        Kind::Text => "a string",
        Kind::List => "an array",
        Kind::Object => "an object",
    }
}

/// A value in a message: its type, and the value where that is short.
fn describe(value: &RawValue) -> String {
    let raw = value.get().trim();
    match Kind::of(value) {
        Kind::Null | Kind::Boolean => raw.to_owned(),
        Kind::Number if raw.len() > NUMBER_CHARS => format!("the number {}...", &raw[..NUMBER_CHARS]),
        Kind::Number => format!("the number {raw}"),
        Kind::Text => match document::text(value) {
            Ok(text) => describe_text(&text),
            Err(_) => "a broken string".to_owned(),
        },
        Kind::List => "an array".to_owned(),
        Kind::Object => "an object".to_owned(),
    }
}

fn describe_text(text: &str) -> String {
    format!("the string {}", shown(text))
}
