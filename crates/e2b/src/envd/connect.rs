//! The Connect protocol with JSON, server side: error codes, envelopes, and the headers of a call.
//!
//! Used by the services of this module. Malformed input is an [`RpcError`]; the memory of a message is bounded by [`MAX_MESSAGE`], and
//! reserved in the account's memory for request bodies as the message arrives ([`Buffers`]).

mod buffers;
mod code;
mod envelope;
mod headers;

pub use buffers::Buffers;
pub use code::{Code, RpcError};
pub use envelope::{Envelope, EnvelopeReader, end_of_stream, message};
pub use headers::{CallKind, CallOptions, call_options, next_chunk, single_message, unary_message};

/// Most bytes in a message with the arguments of a command or with input for it.
pub const MAX_MESSAGE: usize = 4 * 1024 * 1024;
/// Most bytes in any other message: two paths of the greatest length with every byte escaped fit.
pub const MAX_SHORT_MESSAGE: usize = 64 * 1024;

#[cfg(test)]
mod tests;
