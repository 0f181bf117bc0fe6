//! The refusal of a value in a request.

use std::fmt::Display;

use crate::text::quoted::quoted;

/// A value out of its range or set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}; allowed: {allowed}")]
pub struct ConfigError {
    /// As the client wrote it: `resources.cpu`.
    pub field: String,
    /// The received value, shortened and printable.
    pub got: String,
    pub allowed: String,
}

impl ConfigError {
    pub(crate) fn new(field: impl Into<String>, got: impl Display, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), got: got.to_string(), allowed: allowed.into() }
    }

    /// For a text value: quoted, escaped and shortened, since messages go into logs and terminals.
    pub(crate) fn text(field: impl Into<String>, got: &str, allowed: impl Into<String>) -> Self {
        Self::new(field, quoted(got), allowed)
    }
}
