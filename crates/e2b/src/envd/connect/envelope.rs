//! The envelopes of streams: one byte of flags, the length in four bytes (big endian), and a JSON document.

use bytes::{Buf, Bytes, BytesMut};

use super::{Code, MAX_MESSAGE, RpcError};

const PREFIX: usize = 5;
const COMPRESSED: u8 = 0b01;
const END_OF_STREAM: u8 = 0b10;

/// An envelope of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Envelope {
    Message(Bytes),
    EndOfStream,
}

/// Splits received bytes into envelopes. Holds at most one message and the chunk that was pushed last.
#[derive(Debug, Default)]
pub struct EnvelopeReader {
    buffer: BytesMut,
}

impl EnvelopeReader {
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete envelope. The length is checked as soon as it is known.
    pub fn next(&mut self) -> Result<Option<Envelope>, RpcError> {
        let Some(([flags, length @ ..], rest)) = self.buffer.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let (flags, length) = (*flags, u32::from_be_bytes(*length) as usize);
        if flags & COMPRESSED != 0 {
            return Err(RpcError::new(Code::Unimplemented, "compressed messages are not supported"));
        }
        if flags & !END_OF_STREAM != 0 {
            return Err(RpcError::invalid(format!(
                "an envelope has the flags {flags:#04x}; known: 0x00, 0x02"
            )));
        }
        check_length(length)?;
        if rest.len() < length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = self.buffer.split_to(length).freeze();
        Ok(Some(if flags == END_OF_STREAM { Envelope::EndOfStream } else { Envelope::Message(message) }))
    }

    /// Fails if the body ended within an envelope.
    pub fn finish(&self) -> Result<(), RpcError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        Err(RpcError::invalid("the body ends within an envelope"))
    }
}

pub(super) fn check_length(length: usize) -> Result<(), RpcError> {
    if length > MAX_MESSAGE {
        let message = format!("the message has {length} bytes; allowed: at most {MAX_MESSAGE}");
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
