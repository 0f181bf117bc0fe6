//! A body as JSON whose parts are still text, so that each can be read as what its field has to be.
//!
//! serde_json does the reading. What it would pass over is looked at here: bytes that are no text, nesting, and a name that
//! comes twice. Names that nobody asks for are passed over (section 9 lets fields be added).

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::Refusal;

/// No body that means something is nested so deep.
const DEPTH_MAX: usize = 64;
/// Entries of one map or list that are looked at; `rules` allows fewer of everything.
const ENTRIES_MAX: usize = 10_000;

/// The body as one JSON value.
pub fn parse(body: &[u8]) -> Result<&RawValue, Refusal> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Refusal::malformed("the body is empty; it has to be a JSON object"));
    }
    let text = std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Refusal::malformed(format!("the body is not UTF-8: its byte {at} begins no character"))
    })?;
    if is_too_deep(body) {
        return Err(Refusal::malformed(format!(
            "the body is nested too deep; allowed is at most {DEPTH_MAX}"
        )));
    }
    serde_json::from_str(text).map_err(|error| not_json(&error))
}

fn not_json(error: &serde_json::Error) -> Refusal {
    Refusal::malformed(format!("the body is not valid JSON: {error}"))
}

/// Counts brackets outside of strings. What is no JSON is found out later.
fn is_too_deep(body: &[u8]) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return true;
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    false
}

/// What a value is, by its first character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Null,
    Boolean,
    Number,
    Text,
    List,
    Object,
}

impl Kind {
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

/// The text of a value of [`Kind::Text`].
pub fn text(value: &RawValue) -> Result<String, Refusal> {
    serde_json::from_str(value.get()).map_err(|error| not_json(&error))
}

/// Which entries of an object are kept.
#[derive(Debug, Clone, Copy)]
pub enum Keep {
    All,
    Named(&'static [&'static str]),
}

impl Keep {
    fn keeps(self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Named(names) => names.contains(&name),
        }
    }
}

/// An object's or a list's entries.
pub enum Entries<T> {
    Read(Vec<T>),
    /// More than anything may have.
    TooMany,
}

/// The entries of a value of [`Kind::Object`], in their order; a name that comes twice is there twice.
pub fn entries(value: &RawValue, keep: Keep) -> Result<Entries<(String, &RawValue)>, Refusal> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    Members(keep).deserialize(&mut json).map_err(|error| not_json(&error))
}

/// The elements of a value of [`Kind::List`].
pub fn elements(value: &RawValue) -> Result<Entries<&RawValue>, Refusal> {
    let mut json = serde_json::Deserializer::from_str(value.get());
    json.deserialize_seq(Elements).map_err(|error| not_json(&error))
}

pub const fn most_entries() -> usize {
    ENTRIES_MAX
}

struct Members(Keep);

impl<'de> DeserializeSeed<'de> for Members {
    type Value = Entries<(String, &'de RawValue)>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Members {
    type Value = Entries<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        let mut too_many = false;
        while let Some(name) = map.next_key::<String>()? {
            if !self.0.keeps(&name) || too_many {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            read.push((name, map.next_value()?));
            too_many = read.len() > ENTRIES_MAX;
        }
        Ok(if too_many { Entries::TooMany } else { Entries::Read(read) })
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
