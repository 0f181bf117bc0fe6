//! A JSON body whose parts are still text, so that each is parsed as the type of its field.
//!
//! serde_json parses. This module adds the checks that it lacks: invalid UTF-8, depth, repeated names. It reports unknown names, and
//! decides nothing about them.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::RequestRefusal;
use crate::shape;

/// The most entries of one map or list that are parsed. Every limit in `rules` is lower.
const ENTRIES_MAX: usize = 10_000;

/// Parses the body as one JSON value.
pub fn parse(body: &[u8]) -> Result<&RawValue, RequestRefusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(RequestRefusal::malformed("the body is empty; it must be a JSON object"));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        RequestRefusal::malformed(format!("the body is not valid UTF-8 at byte {at}"))
    })?;
    shape::check(body, usize::MAX)?;
    serde_json::from_str(text).map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> RequestRefusal {
    RequestRefusal::malformed(format!("the body is not valid JSON: {error}"))
}

/// The kind of a value, by its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

impl ValueKind {
    /// By the first character, which is enough for a value that is valid JSON.
    pub fn of(value: &RawValue) -> Self {
        match value.get().trim_start().as_bytes().first() {
            Some(b'{') => Self::Object,
            Some(b'[') => Self::List,
            Some(b'"') => Self::Text,
            Some(b't' | b'f') => Self::Boolean,
            Some(b'n') | None => Self::Null,
            Some(_) => Self::Number,
        }
    }
}

/// The text of a value of [`ValueKind::Text`].
pub fn text(value: &RawValue) -> Result<String, RequestRefusal> {
    serde_json::from_str(value.get()).map_err(|error| not_json(&error))
}

/// The entries of an object or array.
pub enum Entries<T> {
    Read(Vec<T>),
    /// More than any field allows.
    TooMany,
}

/// The entries of a value of [`ValueKind::Object`] in order, including repeated names.
pub fn entries(value: &RawValue) -> Result<Entries<(String, &RawValue)>, RequestRefusal> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    json.deserialize_map(Members).map_err(|error| not_json(&error))
}

/// The values of an object's known fields, in the order of `names`. `on_unknown` gets every other name, `on_repeated` the name of a
/// repeated known field and its first two values.
pub fn fields<'de>(
    value: &'de RawValue,
    names: &'static [&'static str],
    on_unknown: impl FnMut(&str),
    on_repeated: impl FnOnce(&str, &RawValue, &RawValue) -> RequestRefusal,
) -> Result<Vec<Option<&'de RawValue>>, RequestRefusal> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    let mut read = KnownFields { names, values: vec![None; names.len()], repeated: None, on_unknown };
    json.deserialize_map(&mut read).map_err(|error| not_json(&error))?;
    match read.repeated {
        Some((name, first, second)) => Err(on_repeated(name, first, second)),
        None => Ok(read.values),
    }
}

/// The elements of a value of [`ValueKind::List`].
pub fn elements(value: &RawValue) -> Result<Entries<&RawValue>, RequestRefusal> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    json.deserialize_seq(Elements).map_err(|error| not_json(&error))
}

/// The most elements of a list or members of an object.
pub const fn most_entries() -> usize {
    ENTRIES_MAX
}

struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Entries<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        let mut too_many = false;
        while !too_many {
            let Some(entry) = map.next_entry()? else { break };
            read.push(entry);
            too_many = read.len() > ENTRIES_MAX;
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(if too_many { Entries::TooMany } else { Entries::Read(read) })
    }
}

struct KnownFields<'de, F> {
    names: &'static [&'static str],
    values: Vec<Option<&'de RawValue>>,
    /// The first repeated name, with both values.
    repeated: Option<(&'static str, &'de RawValue, &'de RawValue)>,
    on_unknown: F,
}

impl<'de, F: FnMut(&str)> Visitor<'de> for &mut KnownFields<'de, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        loop {
            let name = KnownName { names: self.names, on_unknown: &mut self.on_unknown };
            let Some(found) = map.next_key_seed(name)? else { return Ok(()) };
            let Some(index) = found else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let value: &'de RawValue = map.next_value()?;
            match self.values[index] {
                None => self.values[index] = Some(value),
                Some(first) if self.repeated.is_none() => {
                    self.repeated = Some((self.names[index], first, value));
                }
                Some(_) => {}
            }
        }
    }
}

/// The index of a name, if it is known.
struct KnownName<'a, F> {
    names: &'static [&'static str],
    on_unknown: &'a mut F,
}

impl<'de, F: FnMut(&str)> DeserializeSeed<'de> for KnownName<'_, F> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Option<usize>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<F: FnMut(&str)> Visitor<'_> for KnownName<'_, F> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        let Self { names, on_unknown } = self;
        let index = names.iter().position(|known| *known == name);
        if index.is_none() {
            on_unknown(name);
        }
        Ok(index)
    }
}

struct Elements;

impl<'de> Visitor<'de> for Elements {
    type Value = Entries<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        let mut too_many = false;
        while !too_many {
            let Some(element) = list.next_element()? else { break };
            read.push(element);
            too_many = read.len() > ENTRIES_MAX;
        }
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(if too_many { Entries::TooMany } else { Entries::Read(read) })
    }
}
