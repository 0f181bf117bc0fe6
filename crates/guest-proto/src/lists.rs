//! Bounded deserialization of lists, and serialization of byte strings.
//!
//! Lists are checked while they are read, so that a frame that claims a million elements allocates nothing.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error as _, SeqAccess, Visitor};
use serde::ser::Serializer;

use crate::{MAX_ARGS, MAX_ATTRIBUTES, MAX_DIRS, MAX_ENV, MAX_OPS};

/// Serializes as a byte string: serde's default for a slice writes byte by byte.
pub(crate) fn as_bytes<S: Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Like [`as_bytes`], for an option.
pub(crate) fn as_optional_bytes<S: Serializer>(bytes: &Option<&[u8]>, to: S) -> Result<S::Ok, S::Error> {
    struct AsBytes<'a>(&'a [u8]);
    impl serde::Serialize for AsBytes<'_> {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            to.serialize_bytes(self.0)
        }
    }
    match bytes {
        Some(bytes) => to.serialize_some(&AsBytes(bytes)),
        None => to.serialize_none(),
    }
}

pub(crate) fn dirs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<&'de str>, D::Error> {
    from.deserialize_seq(BoundedList::<&str, MAX_DIRS>(PhantomData))
}

pub(crate) fn args<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<&'de str>, D::Error> {
    from.deserialize_seq(BoundedList::<&str, MAX_ARGS>(PhantomData))
}

pub(crate) fn env<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(&'de str, &'de str)>, D::Error> {
    from.deserialize_seq(BoundedList::<(&str, &str), MAX_ENV>(PhantomData))
}

pub(crate) fn attributes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(&'de str, &'de str)>, D::Error> {
    from.deserialize_seq(BoundedList::<(&str, &str), MAX_ATTRIBUTES>(PhantomData))
}

pub(crate) fn ops<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    from.deserialize_seq(BoundedList::<u64, MAX_OPS>(PhantomData))
}

/// Reads a list of at most `MAX` elements, without allocating for its claimed length.
struct BoundedList<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedList<T, MAX> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX} elements")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let claimed = list.size_hint().unwrap_or(0);
        if claimed > MAX {
            return Err(A::Error::invalid_length(claimed, &self));
        }
        let mut out = Vec::with_capacity(claimed.min(16));
        while let Some(item) = list.next_element()? {
            if out.len() == MAX {
                return Err(A::Error::invalid_length(MAX + 1, &self));
            }
            out.push(item);
        }
        Ok(out)
    }
}
