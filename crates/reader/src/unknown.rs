//! Fields of a body that its type does not have.
//!
//! [`strict`](crate::strict) notes them for each object while it reads; the fields that a type asks for are the only list of known
//! names. Refused are names that are probably mistyped, names of fields that belong into another object of the body, and every unknown
//! name in an object whose type denies them. The other ones are ignored, since a client may know a later version of the API, and the
//! response lists them. What clients send is bounded here:
//! [`UnknownNames`] compares and keeps a limited number of names, and [`IgnoredFields`] fits into a header.

use std::fmt::{self, Write};

use rules::{alternatives, mistyped, nearest_name, quoted};

use crate::known_fields::{FieldPath, KnownFields};

/// The most unknown names in a body: each is compared with all known ones, which takes some microseconds.
pub(crate) const UNKNOWN_MAX: usize = 1_000;
/// The most paths that a response lists.
const LISTED_MAX: usize = 16;
/// The longest path that it lists, in bytes. Of a longer one it has the beginning.
const LISTED_BYTES_MAX: usize = 64;
/// Follows what is listed if there is more.
const MORE: &str = "...";
/// Stands for a field whose name is empty.
const NAMELESS: &str = "''";

/// An unknown field that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is an unknown field; {meant}allowed{}: {allowed}", .meant.here())]
pub struct UnknownField {
    /// The path of the field, such as `network.egress.defualt`.
    pub field: String,
    pub meant: Meant,
    /// All fields of the object.
    pub allowed: String,
}

/// What an unknown field was probably meant to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// A field of the same object: the one with the most similar name.
    Nearest(&'static str),
    /// The path of a field of another object.
    Elsewhere(String),
}

impl Meant {
    /// Its name, or its path if it belongs into another object.
    pub fn name(&self) -> &str {
        match self {
            Self::Nearest(name) => name,
            Self::Elsewhere(path) => path,
        }
    }

    fn here(&self) -> &'static str {
        match self {
            Self::Nearest(_) => "",
            Self::Elsewhere(_) => " here",
        }
    }
}

impl fmt::Display for Meant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nearest(name) => write!(f, "the nearest known one is '{name}'; "),
            Self::Elsewhere(path) => write!(f, "did you mean '{path}'? "),
        }
    }
}

impl UnknownField {
    /// A name that is not among the known ones of its object. `path` ends with the name.
    pub fn new(path: String, name: &str, known: &[&'static str]) -> Self {
        let nearest = Meant::Nearest(nearest_name(name, known).unwrap_or_default());
        Self { field: path, meant: nearest, allowed: all(known) }
    }

    /// The name of a field of another object.
    pub(crate) fn misplaced(path: String, meant: &FieldPath, known: &[&'static str]) -> Self {
        Self { field: path, meant: Meant::Elsewhere(meant.to_string()), allowed: all(known) }
    }
}

fn all(known: &[&'static str]) -> String {
    let known: Vec<String> = known.iter().map(|name| quoted(name)).collect();
    alternatives(&known)
}

/// A body, and what it has beside its known fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed<T> {
    pub content: T,
    pub ignored: IgnoredFields,
}

impl<T> Parsed<T> {
    /// Converts the content and keeps the notes.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Parsed<U> {
        Parsed { content: change(self.content), ignored: self.ignored }
    }
}

/// The paths of ignored fields, as a response lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IgnoredFields {
    listed: Vec<String>,
    /// Ignored fields that are not listed.
    others: usize,
}

impl IgnoredFields {
    pub(crate) fn add(&mut self, path: &str) {
        let path = listed(path);
        if self.listed.contains(&path) {
            return;
        }
        if self.listed.len() < LISTED_MAX {
            self.listed.push(path);
        } else {
            self.others += 1;
        }
    }

    /// The value of a header: paths separated by commas, in visible ASCII. `None` if no field was ignored.
    pub fn header_value(&self) -> Option<String> {
        let more = (self.others > 0).then_some(MORE);
        let parts: Vec<&str> = self.listed.iter().map(String::as_str).chain(more).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// What a header cannot hold, commas and percent signs are percent-encoded.
fn listed(path: &str) -> String {
    if path.is_empty() {
        return NAMELESS.to_owned();
    }
    let mut text = String::new();
    for c in path.chars() {
        if text.len() >= LISTED_BYTES_MAX {
            text.push_str(MORE);
            break;
        }
        if c.is_ascii_graphic() && !matches!(c, ',' | '%') {
            text.push(c);
            continue;
        }
        for byte in c.encode_utf8(&mut [0; 4]).bytes() {
            // Writing to a string cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// A name that is refused.
pub(crate) struct RefusedName<'p> {
    pub name: String,
    /// The field of another object that has this name; otherwise the name is a typing error.
    pub meant: Option<&'p FieldPath>,
}

/// The unknown names of one object.
pub(crate) struct UnknownNames<'p> {
    known: &'static [&'static str],
    /// Those of the whole body.
    everywhere: &'p KnownFields,
    refused: Option<RefusedName<'p>>,
    /// The first of the others: more than are listed, so that the list shows that it is not complete.
    others: Vec<String>,
    count: usize,
}

impl<'p> UnknownNames<'p> {
    /// For an object with the fields `known`, in a body with the fields `everywhere`.
    pub const fn new(known: &'static [&'static str], everywhere: &'p KnownFields) -> Self {
        Self { known, everywhere, refused: None, others: Vec::new(), count: 0 }
    }

    /// Notes a name. After `most` names none is compared: the body is refused for their number.
    pub fn add(&mut self, name: &str, most: usize) {
        self.count += 1;
        if self.count > most || self.refused.is_some() {
            return;
        }
        // A field of this object comes first.
        if mistyped(name, self.known).is_some() {
            self.refused = Some(RefusedName { name: name.to_owned(), meant: None });
        } else if let Some(meant) = self.everywhere.meant_by(name) {
            self.refused = Some(RefusedName { name: name.to_owned(), meant: Some(meant) });
        } else if self.others.len() <= LISTED_MAX {
            self.others.push(name.to_owned());
        }
    }

    /// The number of unknown names, those that were not compared included.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// The first name that is probably a typing error, or that of a field of another object.
    pub const fn refused(&self) -> Option<&RefusedName<'p>> {
        self.refused.as_ref()
    }

    /// The first of the other names.
    pub fn into_others(self) -> Vec<String> {
        self.others
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    fn ignored(paths: &[&str]) -> Option<String> {
        let mut ignored = IgnoredFields::default();
        paths.iter().for_each(|path| ignored.add(path));
        ignored.header_value()
    }

    #[test]
    fn ignored_fields_are_listed() {
        assert_eq!(ignored(&[]), None);
        assert_eq!(ignored(&["", "a"]).as_deref(), Some("'', a"));
        assert_eq!(ignored(&["a", "b.c", "a", "[1].d"]).as_deref(), Some("a, b.c, [1].d"));
        assert_eq!(ignored(&["a,b", "50%", "ü", "x y"]).as_deref(), Some("a%2Cb, 50%25, %C3%BC, x%20y"));
        let long = "x".repeat(70);
        assert_eq!(ignored(&[&long]), Some(format!("{}...", "x".repeat(64))));
        let many: Vec<String> = (0..17).map(|n| n.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(ignored(&many[..16]).unwrap().ends_with("14, 15"));
        assert!(ignored(&many).unwrap().ends_with("14, 15, ..."));
    }

    #[test]
    fn names_are_compared_up_to_a_number() {
        let everywhere = KnownFields::of::<api::CreateBody>();
        let refused = |names: &UnknownNames<'_>| names.refused().map(|refused| refused.name.clone());
        let mut names = UnknownNames::new(&["image", "network"], &everywhere);
        names.add("colour", 2);
        names.add("netwrok", 2);
        assert_eq!((refused(&names).as_deref(), names.count()), (Some("netwrok"), 2));
        let mut names = UnknownNames::new(&["image", "network"], &everywhere);
        (0..100).for_each(|n| names.add(&format!("field{n}"), 99));
        names.add("imgae", 99);
        assert_eq!((refused(&names), names.count()), (None, 101));
        let others = names.into_others();
        assert_eq!((others.len(), others[0].as_str()), (LISTED_MAX + 1, "field0"));
    }

    #[test]
    fn a_refusal_names_the_nearest_and_all_fields() {
        let refused = UnknownField::new("a.defualt".to_owned(), "defualt", &["allow", "default"]);
        assert_eq!(
            refused.to_string(),
            "a.defualt is an unknown field; the nearest known one is 'default'; allowed: 'allow' or 'default'"
        );
        let all = KnownFields::of::<api::CreateBody>();
        let egress = all.meant_by("egres").unwrap();
        assert_eq!(
            UnknownField::misplaced("egress".to_owned(), egress, &["image", "network"]).to_string(),
            "egress is an unknown field; did you mean 'network.egress'? allowed here: 'image' or 'network'"
        );
    }

    proptest! {
        /// Whatever a client sends, the header is short, visible, and splits into what was ignored.
        #[test]
        fn any_paths_are_a_header_value(paths in prop::collection::vec(any::<String>(), 0..40)) {
            let mut ignored = IgnoredFields::default();
            paths.iter().for_each(|path| ignored.add(path));
            let Some(value) = ignored.header_value() else {
                prop_assert!(paths.is_empty());
                return Ok(());
            };
            prop_assert!(value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "{value}");
            prop_assert!(value.len() < 1500, "{} bytes", value.len());
            prop_assert_eq!(value.split(", ").count(), ignored.listed.len() + usize::from(ignored.others > 0));
        }
    }
}
