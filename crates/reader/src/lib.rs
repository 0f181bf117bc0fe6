//! From the bytes of a request to what `rules` decides on: bodies, queries and the headers that say how to read them.
//!
//! Called by the server's handlers, and by fuzzing. Pure: no I/O, no clock, no state. What comes in is hostile: nothing here
//! panics, recurses by what it reads, or holds more than a few times the bytes that came. A [`Refusal`] is for the client: it
//! names the field, what came and what is allowed, and leaves nothing behind.

mod bodies;
mod document;
mod executions;
mod files;
mod headers;
mod images;
mod integer;
mod query;
mod strict;

use rules::{ConfigError, QueryError};

pub use bodies::{CommandOrder, RequestBody, signal_number};
pub use executions::{ExecutionQuery, Place, execution_query, line_ends, page, place};
pub use files::{ByteRange, FileQuery, byte_range, file_query, raw_content};
pub use headers::{json_content, wants_stream};
pub use images::{ImageQuery, images};
pub use query::{events, list, path_segment};

/// Why a request is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It cannot be read at all: `INVALID_REQUEST`.
    #[error("{what}")]
    Malformed { what: String },
    /// Something in it is missing or has a wrong type: `INVALID_REQUEST`.
    #[error(transparent)]
    Field(#[from] FieldFault),
    /// A value of the right type that is out of its range or set: `INVALID_CONFIG`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `COMMAND_TOO_LONG`
    #[error(
        "command is {bytes} bytes long; allowed is at most {most} bytes; send a longer script on stdin: 'bash -s'"
    )]
    CommandTooLong { bytes: usize, most: usize },
}

/// A field, parameter or header that is not what it has to be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}; allowed is {allowed}")]
pub struct FieldFault {
    /// As the client wrote it: `resources.cpu`.
    pub field: String,
    /// Short and printable, whatever came.
    pub got: String,
    pub allowed: String,
}

impl Refusal {
    fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}

impl FieldFault {
    fn new(field: impl Into<String>, got: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), got: got.into(), allowed: allowed.into() }
    }
}

impl From<QueryError> for Refusal {
    fn from(error: QueryError) -> Self {
        FieldFault::new(error.field, error.got, error.allowed).into()
    }
}

#[cfg(test)]
mod tests;
