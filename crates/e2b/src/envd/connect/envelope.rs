//! The envelopes of streams: one byte of flags, the length in four bytes (big endian), and a JSON document.

use admission::memory::GrowingBody;
use bytes::{Bytes, BytesMut};

use super::buffers::{Buffers, append};
use super::{Code, RpcError};

const PREFIX: usize = 5;
const COMPRESSED: u8 = 0b01;
const END_OF_STREAM: u8 = 0b10;

/// An envelope of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    Message(Bytes),
    EndOfStream,
}

/// Splits received bytes into envelopes. Holds at most one message, of whose content no more memory is reserved than twice what has
/// arrived.
pub struct EnvelopeReader {
    buffers: Buffers,
    max_bytes: usize,
    /// The beginning of a prefix.
    prefix: Vec<u8>,
    /// The envelope whose content arrives.
    partial: Option<Partial>,
}

struct Partial {
    flags: u8,
    length: usize,
    content: GrowingBody,
}

impl EnvelopeReader {
    /// Accepts messages of at most `max_bytes`.
    pub fn new(buffers: Buffers, max_bytes: usize) -> Self {
        Self { buffers, max_bytes, prefix: Vec::with_capacity(PREFIX), partial: None }
    }

    /// The next complete envelope, or `None` when it has taken all of `input`. The length is checked as soon as it is known.
    pub async fn next(&mut self, input: &mut Bytes) -> Result<Option<Envelope>, RpcError> {
        let mut partial = match self.partial.take() {
            Some(partial) => partial,
            None => {
                let more = input.split_to((PREFIX - self.prefix.len()).min(input.len()));
                self.prefix.extend_from_slice(&more);
                let Ok(prefix) = <[u8; PREFIX]>::try_from(self.prefix.as_slice()) else { return Ok(None) };
                self.prefix.clear();
                self.begin(prefix)?
            }
        };
        let missing = partial.length - partial.content.received();
        append(&mut partial.content, &input.split_to(missing.min(input.len()))).await?;
        if partial.content.received() < partial.length {
            self.partial = Some(partial);
            return Ok(None);
        }
        let message = partial.content.done();
        Ok(Some(if partial.flags == END_OF_STREAM {
            Envelope::EndOfStream
        } else {
            Envelope::Message(message)
        }))
    }

    fn begin(&self, [flags, length @ ..]: [u8; PREFIX]) -> Result<Partial, RpcError> {
        let length = u32::from_be_bytes(length) as usize;
        if flags & COMPRESSED != 0 {
            return Err(RpcError::new(Code::Unimplemented, "compressed messages are not supported"));
        }
        if flags & !END_OF_STREAM != 0 {
            return Err(RpcError::invalid(format!(
                "an envelope has the flags {flags:#04x}; known: 0x00, 0x02"
            )));
        }
        check_length(length, self.max_bytes)?;
        Ok(Partial { flags, length, content: self.buffers.message(length) })
    }

    /// Whether a part of an envelope has arrived.
    pub fn is_within_message(&self) -> bool {
        self.partial.is_some() || !self.prefix.is_empty()
    }

    /// Fails if the body ended within an envelope.
    pub fn finish(&self) -> Result<(), RpcError> {
        if self.is_within_message() {
            return Err(RpcError::invalid("the body ends within an envelope"));
        }
        Ok(())
    }
}

pub(super) fn check_length(length: usize, max_bytes: usize) -> Result<(), RpcError> {
    if length > max_bytes {
        let message = format!("the message has {length} bytes; allowed: at most {max_bytes}");
        return Err(RpcError::new(Code::ResourceExhausted, message));
    }
    Ok(())
}

/// An envelope with a message of a response.
pub fn message(json: &[u8]) -> Bytes {
    envelope(0, json)
}

/// The last envelope of a response. Clients treat a stream without one as broken.
pub fn end_of_stream(error: Option<&RpcError>) -> Bytes {
    match error {
        None => envelope(END_OF_STREAM, b"{}"),
        Some(error) => {
            envelope(END_OF_STREAM, serde_json::json!({ "error": error.to_json() }).to_string().as_bytes())
        }
    }
}

fn envelope(flags: u8, json: &[u8]) -> Bytes {
    let mut bytes = BytesMut::with_capacity(PREFIX + json.len());
    // Messages of responses are far below 4 GiB.
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    bytes.extend_from_slice(&[flags]);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(json);
    bytes.freeze()
}
