//! The Connect protocol with JSON, server side: error codes, envelopes, and the headers of a call.
//!
//! Used by the services of this module. Malformed input is an [`RpcError`]; memory is bounded by [`MAX_MESSAGE`].

mod code;
mod envelope;
mod headers;

pub use code::{Code, RpcError};
pub use envelope::{Envelope, EnvelopeReader, end_of_stream, message};
pub use headers::{CallKind, CallOptions, call_options, next_chunk, single_message, unary_message};

/// Most bytes in one message of a request.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests;
