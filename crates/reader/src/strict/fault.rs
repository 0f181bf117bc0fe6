//! Why a value of a body is refused, and how messages show it: the path, and the value, shortened.

use std::fmt;

use rules::{ConfigError, alternatives, escaped, quoted};
use serde::de::{self, Expected, Unexpected};
use serde_json::value::RawValue;

use crate::document::{self, ValueKind};
use crate::unknown::UNKNOWN_MAX;
use crate::{FieldFault, RequestRefusal};

/// Digits of a number that a message shows.
const NUMBER_CHARS: usize = 40;

/// The path of a value in the body.
pub(super) enum Path<'p> {
    Body,
    Field(&'p Path<'p>, &'p str),
    Element(&'p Path<'p>, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Body => f.write_str("body"),
            Path::Field(Path::Body, name) => f.write_str(&escaped(name)),
            Path::Field(above, name) => write!(f, "{above}.{}", escaped(name)),
            Path::Element(Path::Body, index) => write!(f, "[{index}]"),
            Path::Element(above, index) => write!(f, "{above}[{index}]"),
        }
    }
}

/// Why a value is refused. An error of a type becomes a [`RequestRefusal`] where the value and its path are known.
#[derive(Debug)]
pub(super) enum ValueFault {
    Refused(RequestRefusal),
    /// A wrong type or form.
    Form(String),
    /// A value outside a set.
    Set(String),
    Missing(&'static str),
    /// A field that the type denies, and its known fields.
    Unknown(String, &'static [&'static str]),
    Other(String),
}

impl std::error::Error for ValueFault {}

impl fmt::Display for ValueFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Form(text) | Self::Set(text) | Self::Other(text) => f.write_str(text),
            Self::Missing(field) => write!(f, "{field} is missing"),
            Self::Unknown(field, _) => write!(f, "{field} is an unknown field"),
        }
    }
}

impl de::Error for ValueFault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }

    fn invalid_type(_: Unexpected<'_>, allowed: &dyn Expected) -> Self {
        Self::Form(allowed.to_string())
    }

    fn invalid_value(_: Unexpected<'_>, allowed: &dyn Expected) -> Self {
        Self::Set(allowed.to_string())
    }

    fn unknown_variant(_: &str, variants: &'static [&'static str]) -> Self {
        let names: Vec<String> = variants.iter().map(|name| format!("'{name}'")).collect();
        Self::Set(alternatives(&names))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::Missing(field)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::Unknown(field.to_owned(), known)
    }
}

impl From<RequestRefusal> for ValueFault {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Refused(refusal)
    }
}

pub(super) fn repeated(path: &Path<'_>, first: &RawValue, second: &RawValue) -> RequestRefusal {
    let got = format!("given twice, as {} and as {}", describe(first), describe(second));
    FieldFault::new(path.to_string(), got, "one value").into()
}

pub(super) fn too_many(path: &Path<'_>) -> RequestRefusal {
    let got = format!("longer than {} entries", document::most_entries());
    ConfigError { field: path.to_string(), got, allowed: "fewer entries".to_owned() }.into()
}

pub(super) fn too_many_unknown() -> RequestRefusal {
    let got = format!("an object with more than {UNKNOWN_MAX} unknown fields");
    ConfigError { field: "body".to_owned(), got, allowed: "fewer unknown fields".to_owned() }.into()
}

pub(super) fn allowed(kind: ValueKind) -> &'static str {
    match kind {
        ValueKind::Null => "null",
        ValueKind::Boolean => "true or false",
        ValueKind::Number => "an integer",
        ValueKind::Text => "a string",
        ValueKind::List => "an array",
        ValueKind::Object => "an object",
    }
}

/// A value as a message shows it: its type, and the value, shortened.
pub(super) fn describe(value: &RawValue) -> String {
    let raw = value.get().trim();
    match ValueKind::of(value) {
        ValueKind::Null | ValueKind::Boolean => raw.to_owned(),
        ValueKind::Number if raw.len() > NUMBER_CHARS => format!("the number {}...", &raw[..NUMBER_CHARS]),
        ValueKind::Number => format!("the number {raw}"),
        ValueKind::Text => match document::text(value) {
            Ok(text) => format!("the string {}", quoted(&text)),
            Err(_) => "an invalid string".to_owned(),
        },
        ValueKind::List => "an array".to_owned(),
        ValueKind::Object => "an object".to_owned(),
    }
}
