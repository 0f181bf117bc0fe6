//! The limit that refuses a request, as every error with status 429 or 503 names it.
//!
//! Refusals of this crate have a method `limit`, and the limit at the end of their message.

use std::borrow::Cow;
use std::fmt;

/// A limit that a request has reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReachedLimit {
    pub value: u64,
    /// What the value counts, such as `creates per minute`.
    pub counts: &'static str,
    /// What the operator changes for another limit, usually a key of the configuration; `None` if the limit is fixed.
    pub key: Option<Cow<'static, str>>,
}

impl ReachedLimit {
    /// A limit that the operator can change.
    pub fn set_by_operator(value: u64, counts: &'static str, key: impl Into<Cow<'static, str>>) -> Self {
        Self { value, counts, key: Some(key.into()) }
    }

    /// A limit of the program.
    pub const fn fixed(value: u64, counts: &'static str) -> Self {
        Self { value, counts, key: None }
    }
}

impl fmt::Display for ReachedLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, counts, key } = self;
        write!(f, "the limit is {value} {counts}")?;
        match key {
            Some(key) => write!(f, " (the operator sets {key})"),
            None => f.write_str(" (fixed)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_value_and_who_sets_it() {
        let creates = ReachedLimit::set_by_operator(10, "creates per minute", "limits.create_per_minute");
        assert_eq!(
            creates.to_string(),
            "the limit is 10 creates per minute (the operator sets limits.create_per_minute)"
        );
        assert_eq!(
            ReachedLimit::fixed(16, "file operations at a time in a sandbox").to_string(),
            "the limit is 16 file operations at a time in a sandbox (fixed)"
        );
    }
}
