//! Parses requests: bodies, queries and the headers that determine how to read them. `rules` then checks the values.
//!
//! Called by the server's handlers and by fuzzers. Pure: no I/O, no clock, no state. Input is untrusted: nothing here panics,
//! recurses with the depth of the input, or holds more than a few times its bytes. A [`RequestRefusal`] is for the client: it names the
//! field, the value received and the allowed values.

mod bodies;
mod document;
mod executions;
mod files;
mod headers;
mod images;
mod integer;
mod known_fields;
mod percent;
mod query;
mod respelled;
mod shape;
mod strict;
mod unknown;

use rules::{ConfigError, QueryError};

pub use bodies::{RequestBody, ValidatedCommand, signal_number};
pub use executions::{
    ExecutionQuery, OutputForm, OutputOffset, execution_query, output_form, output_offset, page,
};
pub use files::{ByteRange, FileQuery, byte_range, file_query, raw_content};
pub use headers::{json_content, wants_page, wants_stream};
pub use images::{ImageQuery, images};
pub use percent::path_segment;
pub use query::{details, events, list, samples, snapshots, templates};
pub use respelled::respelled_field;
pub use shape::check as check_shape;
pub use strict::OneOrMore;
pub use unknown::{IgnoredFields, Meant, Parsed, UnknownField};

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// It cannot be parsed: `INVALID_REQUEST`.
    #[error("{what}")]
    Malformed { what: String },
    /// A field is missing or has a wrong type: `INVALID_REQUEST`.
    #[error(transparent)]
    Field(#[from] FieldFault),
    /// A field that the API does not have: `INVALID_REQUEST`.
    #[error(transparent)]
    Unknown(#[from] UnknownField),
    /// A value of the right type is not allowed: `INVALID_CONFIG`.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// `COMMAND_TOO_LONG`
    #[error(
        "command is {bytes} bytes long; allowed: at most {most} bytes; send a longer script on stdin: 'bash -s'"
    )]
    CommandTooLong { bytes: usize, most: usize },
}

/// An invalid field, parameter or header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} is {got}; allowed: {allowed}")]
pub struct FieldFault {
    /// The path of the field, such as `resources.cpu`.
    pub field: String,
    /// The value received, shortened and printable.
    pub got: String,
    pub allowed: String,
}

impl RequestRefusal {
    fn malformed(what: impl Into<String>) -> Self {
        Self::Malformed { what: what.into() }
    }
}

impl FieldFault {
    fn new(field: impl Into<String>, got: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { field: field.into(), got: got.into(), allowed: allowed.into() }
    }
}

impl From<QueryError> for RequestRefusal {
    fn from(error: QueryError) -> Self {
        FieldFault::new(error.field, error.got, error.allowed).into()
    }
}

#[cfg(test)]
mod tests;
