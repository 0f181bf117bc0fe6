//! A serde deserializer for request bodies that reports faults as the API does.
//!
//! serde_json alone does not suffice: it reads `null` as an absent field, keeps the last of two equal names, and its errors are
//! sentences without the field's path, the value received or what is allowed. This one reads the same types, derived with serde,
//! under these rules:
//!
//! - A value of a wrong type, `null` included, a missing field and a repeated name are a [`FieldFault`] (`INVALID_REQUEST`).
//! - A value of the right type outside a set is a [`ConfigError`] (`INVALID_CONFIG`), as are all ranges, which `rules` checks.
//! - An unknown field is an [`UnknownField`] (`INVALID_REQUEST`) if its name is probably mistyped, or if the type of the object has the
//!   attribute `deny_unknown_fields`, or if it is the name of a field of another object of the body. Others are ignored, and listed in [`Parsed`].
//!
//! A type reports a value outside a set as `invalid_value` or `unknown_variant`, and a string of a wrong form as `invalid_type`.
//! Objects that a type reads as a map have no unknown fields: their names are data.

mod fault;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::{self, Entry};

use rules::{ConfigError, Integer, quoted};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::document::{self, Entries, ValueKind};
use crate::integer::integer;
use crate::known_fields::KnownFields;
use crate::unknown::{IgnoredFields, Parsed, RefusedName, UNKNOWN_MAX, UnknownField, UnknownNames};
use crate::{FieldFault, RequestRefusal};
use fault::{Path, ValueFault, allowed, describe, repeated, too_many, too_many_unknown};

/// Parses a body that is one object.
pub fn body<'de, T: Deserialize<'de>>(body: &'de [u8]) -> Result<Parsed<T>, RequestRefusal> {
    whole(document::parse(body)?)
}

fn whole<'de, T: Deserialize<'de>>(body: &'de RawValue) -> Result<Parsed<T>, RequestRefusal> {
    let notes = BodyNotes::of::<T>();
    let content = Value { path: &Path::Body, raw: Some(body), body: &notes }.read()?;
    Ok(Parsed { content, ignored: notes.ignored.into_inner() })
}

/// What all values of a body share.
struct BodyNotes {
    ignored: RefCell<IgnoredFields>,
    /// Unknown names in all objects so far.
    unknown: Cell<usize>,
    /// Those of the body's type.
    known: KnownFields,
}

impl BodyNotes {
    fn of<'de, T: Deserialize<'de>>() -> Self {
        Self { ignored: RefCell::default(), unknown: Cell::new(0), known: KnownFields::of::<T>() }
    }
}

/// A body that is an object or an array of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OneOrMore<T> {
    One(T),
    More(Vec<T>),
}

impl<T> OneOrMore<T> {
    /// The elements, at least one.
    pub fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(one) => vec![one],
            Self::More(all) => all,
        }
    }
}

/// Parses a body that is an object, or an array of 1 to `most` objects.
pub fn one_or_more<'de, T: Deserialize<'de>>(
    body: &'de [u8],
    most: usize,
) -> Result<Parsed<OneOrMore<T>>, RequestRefusal> {
    let value = document::parse(body)?;
    if ValueKind::of(value) != ValueKind::List {
        if ValueKind::of(value) != ValueKind::Object {
            return Err(FieldFault::new("body", describe(value), "an object, or an array of objects").into());
        }
        return Ok(whole::<T>(value)?.map(OneOrMore::One));
    }
    let Entries::Read(elements) = document::elements(value)? else { return Err(too_many(&Path::Body)) };
    if elements.is_empty() || elements.len() > most {
        let got = format!("an array of {} entries", elements.len());
        let allowed = format!("1 to {most} entries");
        return Err(ConfigError { field: "body".to_owned(), got, allowed }.into());
    }
    let notes = BodyNotes::of::<T>();
    let read = |(index, raw)| {
        Value { path: &Path::Element(&Path::Body, index), raw: Some(raw), body: &notes }.read()
    };
    let all = elements.into_iter().enumerate().map(read).collect::<Result<Vec<T>, RequestRefusal>>()?;
    Ok(Parsed { content: OneOrMore::More(all), ignored: notes.ignored.into_inner() })
}

/// A value and its path; without a value, the path of an absent field.
#[derive(Clone, Copy)]
struct Value<'p, 'de> {
    path: &'p Path<'p>,
    raw: Option<&'de RawValue>,
    body: &'p BodyNotes,
}

impl<'de> Value<'_, 'de> {
    fn read<T: Deserialize<'de>>(self) -> Result<T, RequestRefusal> {
        T::deserialize(self).map_err(|fault| self.refusal(fault))
    }

    /// The value, if it is present and of a kind.
    fn of_kind(self, kind: ValueKind) -> Result<&'de RawValue, ValueFault> {
        let Some(raw) = self.raw else { return Err(self.fault("missing".to_owned(), allowed(kind))) };
        if ValueKind::of(raw) == kind { Ok(raw) } else { Err(self.fault(describe(raw), allowed(kind))) }
    }

    fn fault(self, got: String, allowed: impl Into<String>) -> ValueFault {
        ValueFault::Refused(FieldFault::new(self.path.to_string(), got, allowed).into())
    }

    fn text(self) -> Result<String, ValueFault> {
        let raw = self.of_kind(ValueKind::Text)?;
        let unreadable =
            |refusal| RequestRefusal::malformed(format!("{} cannot be read: {refusal}", self.path));
        Ok(document::text(raw).map_err(unreadable)?)
    }

    fn integer(self) -> Result<Integer, ValueFault> {
        let raw = self.raw.filter(|raw| ValueKind::of(raw) == ValueKind::Number);
        match raw.and_then(|raw| integer(raw.get().trim())) {
            Some(number) => Ok(number),
            None => {
                Err(self.fault(self.raw.map_or("missing".to_owned(), describe), allowed(ValueKind::Number)))
            }
        }
    }

    /// An error of a type, with the path and the value.
    fn refusal(self, fault: ValueFault) -> RequestRefusal {
        let field = self.path.to_string();
        let got = || self.raw.map_or("missing".to_owned(), describe);
        match fault {
            ValueFault::Refused(refusal) => refusal,
            ValueFault::Form(allowed) => FieldFault::new(field, got(), allowed).into(),
            ValueFault::Set(allowed) => {
                let text = self.text().map_or_else(|_| got(), |text| quoted(&text));
                ConfigError { field, got: text, allowed }.into()
            }
            ValueFault::Missing(name) => {
                FieldFault::new(Path::Field(self.path, name).to_string(), "missing", "a value").into()
            }
            ValueFault::Unknown(name, known) => self.unknown_field(&name, known).into(),
            ValueFault::Other(message) => {
                RequestRefusal::malformed(format!("{field} cannot be read: {message}"))
            }
        }
    }

    fn unknown_field(self, name: &str, known: &'static [&'static str]) -> UnknownField {
        UnknownField::new(Path::Field(self.path, name).to_string(), name, known)
    }

    /// Refuses mistyped and misplaced names of this object, and lists the other unknown ones. Returns one of them, which the type may
    /// deny.
    fn note_unknown(
        self,
        names: UnknownNames<'_>,
        known: &'static [&'static str],
    ) -> Result<Option<String>, RequestRefusal> {
        if let Some(RefusedName { name, meant }) = names.refused() {
            let path = Path::Field(self.path, name).to_string();
            return Err(match meant {
                Some(meant) => UnknownField::misplaced(path, meant, known),
                None => UnknownField::new(path, name, known),
            }
            .into());
        }
        let unknown = self.body.unknown.get() + names.count();
        self.body.unknown.set(unknown);
        if unknown > UNKNOWN_MAX {
            return Err(too_many_unknown());
        }
        let names = names.into_others();
        let mut ignored = self.body.ignored.borrow_mut();
        names.iter().for_each(|name| ignored.add(&Path::Field(self.path, name).to_string()));
        Ok(names.into_iter().next())
    }

    fn settle<T>(self, read: Result<T, ValueFault>) -> Result<T, ValueFault> {
        read.map_err(|fault| ValueFault::Refused(self.refusal(fault)))
    }
}

macro_rules! integers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
            visitor.visit_i128(self.integer()?)
        })*
    };
}

impl<'de> Deserializer<'de> for Value<'_, 'de> {
    type Error = ValueFault;

    /// For free-form content: parsed by serde_json.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        let Some(raw) = self.raw else { return visitor.visit_none() };
        let mut json = serde_json::Deserializer::from_str(raw.get());
        json.deserialize_any(visitor).map_err(|error| ValueFault::Other(error.to_string()))
    }

    /// Only an absent field is `None`: `null` is a value of a wrong type.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        if self.raw.is_some() { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        visitor.visit_bool(self.of_kind(ValueKind::Boolean)?.get().trim() == "true")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        visitor.visit_string(self.text()?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        self.deserialize_string(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueFault> {
        visitor.visit_enum(Variant(&self.text()?))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueFault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        let raw = self.of_kind(ValueKind::List)?;
        let Entries::Read(elements) = document::elements(raw)? else {
            return Err(too_many(self.path).into());
        };
        let elements = elements.into_iter().enumerate();
        visitor.visit_seq(Elements { path: self.path, elements, body: self.body })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueFault> {
        let raw = self.of_kind(ValueKind::Object)?;
        let Entries::Read(entries) = document::entries(raw)? else { return Err(too_many(self.path).into()) };
        let mut unique = BTreeMap::new();
        for (name, value) in entries {
            match unique.entry(name) {
                Entry::Vacant(entry) => {
                    entry.insert(value);
                }
                // It is unknown which of the two values is meant.
                Entry::Occupied(first) => {
                    return Err(repeated(&Path::Field(self.path, first.key()), first.get(), value).into());
                }
            }
        }
        let entries = unique.into_iter();
        visitor.visit_map(Names { path: self.path, entries, next: None, body: self.body })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueFault> {
        let mut unknown = UnknownNames::new(fields, &self.body.known);
        let most = UNKNOWN_MAX.saturating_sub(self.body.unknown.get());
        let values = document::fields(
            self.of_kind(ValueKind::Object)?,
            fields,
            |name| unknown.add(name, most),
            |name, first, second| repeated(&Path::Field(self.path, name), first, second),
        )?;
        let unknown = self.note_unknown(unknown, fields)?;
        visitor.visit_map(Fields { path: self.path, fields, values, next: 0, unknown, body: self.body })
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
    }

    serde::forward_to_deserialize_any! {
        f32 f64 char bytes byte_buf unit unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// The fields of a struct in their declared order, including absent ones, so that the error names a missing field. An unknown name
/// comes first: the type denies it, or ignores it like all others.
struct Fields<'p, 'de> {
    path: &'p Path<'p>,
    fields: &'static [&'static str],
    values: Vec<Option<&'de RawValue>>,
    next: usize,
    unknown: Option<String>,
    body: &'p BodyNotes,
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = ValueFault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueFault> {
        let known = || self.fields.get(self.next).copied();
        let Some(name) = self.unknown.as_deref().or_else(known) else { return Ok(None) };
        let name: StrDeserializer<'_, ValueFault> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ValueFault> {
        let body = self.body;
        if self.unknown.take().is_some() {
            // The type has ignored the name and ignores the value.
            return seed.deserialize(Value { path: self.path, raw: None, body });
        }
        let name = self.fields.get(self.next).copied().unwrap_or_default();
        let raw = self.values.get(self.next).copied().flatten();
        self.next += 1;
        let value = Value { path: &Path::Field(self.path, name), raw, body };
        value.settle(seed.deserialize(value))
    }
}

/// The entries of an object with arbitrary names.
struct Names<'p, 'de> {
    path: &'p Path<'p>,
    entries: btree_map::IntoIter<String, &'de RawValue>,
    next: Option<(String, &'de RawValue)>,
    body: &'p BodyNotes,
}

impl<'de> MapAccess<'de> for Names<'_, 'de> {
    type Error = ValueFault;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, ValueFault> {
        self.next = self.entries.next();
        let Some((name, _)) = &self.next else { return Ok(None) };
        let name: StrDeserializer<'_, ValueFault> = name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, ValueFault> {
        let Some((name, raw)) = self.next.take() else {
            return Err(ValueFault::Other("no entry".to_owned()));
        };
        let value = Value { path: &Path::Field(self.path, &name), raw: Some(raw), body: self.body };
        value.settle(seed.deserialize(value))
    }
}

struct Elements<'p, 'de> {
    path: &'p Path<'p>,
    elements: std::iter::Enumerate<std::vec::IntoIter<&'de RawValue>>,
    body: &'p BodyNotes,
}

impl<'de> SeqAccess<'de> for Elements<'_, 'de> {
    type Error = ValueFault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, ValueFault> {
        let Some((index, raw)) = self.elements.next() else { return Ok(None) };
        let value = Value { path: &Path::Element(self.path, index), raw: Some(raw), body: self.body };
        value.settle(seed.deserialize(value)).map(Some)
    }
}

/// The name of a unit variant; bodies have no others.
struct Variant<'a>(&'a str);

impl<'de> EnumAccess<'de> for Variant<'_> {
    type Error = ValueFault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), ValueFault> {
        let name: StrDeserializer<'_, ValueFault> = self.0.into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_> {
    type Error = ValueFault;

    fn unit_variant(self) -> Result<(), ValueFault> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, _: T) -> Result<T::Value, ValueFault> {
        Err(ValueFault::Other("a variant with content".to_owned()))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, ValueFault> {
        Err(ValueFault::Other("a variant with content".to_owned()))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, ValueFault> {
        Err(ValueFault::Other("a variant with content".to_owned()))
    }
}
