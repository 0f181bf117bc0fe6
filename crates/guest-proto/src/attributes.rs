//! Extended attributes of files, and the kinds of events of a watch.

use serde::{Deserialize, Serialize};

use crate::{MAX_ATTRIBUTE_BYTES, MAX_ATTRIBUTE_NAME, MAX_ATTRIBUTES, ProtoError, lists};

/// The extended attributes of a file whose names begin with `user.` and a prefix, without both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attributes<'a> {
    #[serde(borrow)]
    pub prefix: AttributePrefix<'a>,
    #[serde(borrow, deserialize_with = "lists::attributes")]
    pub pairs: Vec<(&'a str, &'a str)>,
}

/// The prefix of extended attributes, such as `app.` for `user.app.NAME`.
pub type AttributePrefix<'a> = &'a str;

/// What happened to a name in a watched directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchEventKind {
    /// It was created, or moved to this name.
    Create,
    /// Its content changed.
    Write,
    /// It was deleted.
    Remove,
    /// It was moved away from this name.
    Rename,
    /// Its owner, permissions, times or extended attributes changed.
    Chmod,
}

/// Checks the names and the sizes of a list.
pub(crate) fn check_list(pairs: &[(&str, &str)]) -> Result<(), ProtoError> {
    at_most("the list of attributes", pairs.len(), MAX_ATTRIBUTES)?;
    for (name, _) in pairs {
        if name.is_empty() {
            return Err(ProtoError::Invalid { field: "the name of an attribute", reason: "is empty" });
        }
        check_name("the name of an attribute", name)?;
    }
    let bytes = pairs.iter().map(|(name, value)| name.len() + value.len()).sum();
    at_most("the attributes", bytes, MAX_ATTRIBUTE_BYTES)
}

/// Checks a name or a prefix, which may be empty.
pub(crate) fn check_name(field: &'static str, name: &str) -> Result<(), ProtoError> {
    if name.contains('\0') {
        return Err(ProtoError::Invalid { field, reason: "has a NUL byte" });
    }
    at_most(field, name.len(), MAX_ATTRIBUTE_NAME)
}

fn at_most(field: &'static str, got: usize, max: usize) -> Result<(), ProtoError> {
    if got > max { Err(ProtoError::TooMany { field, got, max }) } else { Ok(()) }
}
