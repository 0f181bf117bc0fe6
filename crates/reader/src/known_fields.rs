//! All fields of the type of a body, at every level. The type itself is the only list of them.
//!
//! A type that serde derives tells its deserializer which fields it has. [`trace`] is a deserializer without a value: it leads the type
//! along one path after the other and notes the fields at its end. Maps and free-form values end a path: their names are data.

use std::cell::{Cell, OnceCell};
use std::fmt;

use rules::misplaced;
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess, Visitor};

/// Bodies are not nested as deep. Bounds the search in a type that contains itself.
const DEPTH_MAX: usize = 8;

/// The names from the body to a field, such as `network`, `egress`, `default`. Elements of lists have no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<&'static str>);

impl FieldPath {
    /// The name of the field itself.
    pub fn name(&self) -> &'static str {
        self.0.last().copied().unwrap_or_default()
    }

    /// The path of the object that has it; empty for a field of the body.
    pub fn object(&self) -> &[&'static str] {
        self.0.split_last().map_or(&[], |(_, object)| object)
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

/// The fields of one type. They are traced when they are first needed, which most bodies never do.
pub(crate) struct KnownFields {
    trace: fn() -> Vec<FieldPath>,
    traced: OnceCell<Traced>,
}

struct Traced {
    paths: Vec<FieldPath>,
    /// The name of each.
    names: Vec<&'static str>,
}

impl KnownFields {
    /// The fields that this type reads, found when they are first needed.
    pub fn of<'de, T: Deserialize<'de>>() -> Self {
        Self { trace: trace::<'de, T>, traced: OnceCell::new() }
    }

    fn traced(&self) -> &Traced {
        self.traced.get_or_init(|| {
            let paths = (self.trace)();
            let names = paths.iter().map(FieldPath::name).collect();
            Traced { paths, names }
        })
    }

    /// The field that a name probably means, which is not one of the object that has it.
    pub fn meant_by(&self, name: &str) -> Option<&FieldPath> {
        let Traced { paths, names } = self.traced();
        misplaced(name, names).map(|at| &paths[at])
    }
}

/// The fields of a type, those of outer objects first.
pub(crate) fn trace<'de, T: Deserialize<'de>>() -> Vec<FieldPath> {
    let mut paths: Vec<FieldPath> = fields_at::<T>(&[]);
    let mut at = 0;
    while let Some(FieldPath(path)) = paths.get(at).cloned() {
        at += 1;
        if path.len() < DEPTH_MAX {
            paths.extend(fields_at::<T>(&path));
        }
    }
    paths
}

/// The fields of the object at a path; none if it has no fields.
fn fields_at<'de, T: Deserialize<'de>>(path: &[&'static str]) -> Vec<FieldPath> {
    let found = Cell::new(None);
    // Always fails: there is no value.
    let _: Result<T, PathEnd> = T::deserialize(Probe { path, found: &found });
    let fields: &[&'static str] = found.get().unwrap_or_default();
    fields.iter().map(|field| FieldPath([path, &[*field]].concat())).collect()
}

/// The end of a path.
#[derive(Debug)]
struct PathEnd;

impl std::error::Error for PathEnd {}

impl fmt::Display for PathEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the end of the path")
    }
}

impl de::Error for PathEnd {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self
    }
}

#[derive(Clone, Copy)]
struct Probe<'p> {
    /// The names that are left.
    path: &'p [&'static str],
    found: &'p Cell<Option<&'static [&'static str]>>,
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = PathEnd;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, PathEnd> {
        Err(PathEnd)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathEnd> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, PathEnd> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, PathEnd> {
        visitor.visit_seq(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, PathEnd> {
        if self.path.is_empty() {
            self.found.set(Some(fields));
            return Err(PathEnd);
        }
        visitor.visit_map(self)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map enum identifier ignored_any
    }
}

/// An object that has only the next field of the path.
impl<'de> MapAccess<'de> for Probe<'_> {
    type Error = PathEnd;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, PathEnd> {
        let (name, rest) = self.path.split_first().ok_or(PathEnd)?;
        self.path = rest;
        let name: StrDeserializer<'_, PathEnd> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, PathEnd> {
        seed.deserialize(*self)
    }
}

/// A list of one element.
impl<'de> SeqAccess<'de> for Probe<'_> {
    type Error = PathEnd;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, PathEnd> {
        seed.deserialize(*self).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use api::{CreateBody, EventBody, ExecuteBody};
    use serde_json::Value;

    use super::*;

    fn texts<'de, T: Deserialize<'de>>() -> Vec<String> {
        trace::<'de, T>().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_fields_of_a_create_are_found_at_all_levels() {
        let found = texts::<CreateBody>();
        for field in [
            "image",
            "name",
            "metadata",
            "resources.cpu",
            "resources.memoryMb",
            "network.egress",
            "network.egress.default",
            "network.egress.denyNetworks",
            "network.ingress.allowPorts",
        ] {
            assert!(found.iter().any(|known| known == field), "{field} in {found:?}");
        }
        // Those of a map are data.
        assert!(!found.iter().any(|known| known.starts_with("env.") || known.starts_with("metadata.")));
        let depth = |known: &String| known.matches('.').count();
        assert!(found.is_sorted_by_key(depth), "{found:?}");
    }

    #[test]
    fn free_form_values_have_no_fields() {
        assert!(trace::<Value>().is_empty() && trace::<String>().is_empty());
        assert!(texts::<EventBody>().contains(&"data".to_owned()));
        assert!(texts::<ExecuteBody>().iter().all(|known| !known.contains('.')));
    }

    #[derive(Deserialize)]
    struct List {
        #[expect(dead_code, reason = "only its type is used")]
        elements: Vec<Nested>,
    }

    #[derive(Deserialize)]
    struct Nested {
        #[expect(dead_code, reason = "only its type is used")]
        inner: Option<Box<Nested>>,
    }

    #[test]
    fn lists_are_transparent_and_recursion_is_bounded() {
        let found = texts::<List>();
        assert_eq!(found[..3], ["elements", "elements.inner", "elements.inner.inner"]);
        assert_eq!(found.len(), DEPTH_MAX);
    }
}
