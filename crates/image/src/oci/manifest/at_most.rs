//! A list of a manifest with a bound of what is kept of it.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use crate::fault::Fault;

/// The first entries of a list: one more than are allowed, so that a longer list can be refused.
#[derive(Debug)]
pub(super) struct AtMost<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> AtMost<T, MAX> {
    /// The list, unless it is longer than allowed.
    pub(super) fn get(self, what: &str) -> Result<Vec<T>, Fault> {
        if self.0.len() > MAX {
            return Err(Fault::too_big(format!("the image has more than the {MAX} {what} allowed")));
        }
        Ok(self.0)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for AtMost<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for List<T, MAX> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Vec<T>, A::Error> {
                let mut list = Vec::new();
                while list.len() <= MAX {
                    let Some(entry) = access.next_element()? else { return Ok(list) };
                    list.push(entry);
                }
                while access.next_element::<IgnoredAny>()?.is_some() {}
                Ok(list)
            }
        }

        deserializer.deserialize_seq(List::<T, MAX>(PhantomData)).map(Self)
    }
}
