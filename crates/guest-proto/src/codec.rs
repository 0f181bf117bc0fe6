//! Converts bytes to frames and messages, and back. Called by the links of the host and the agent. A failed encoding
//! does not change the buffer.

use serde::Serialize;

use crate::error::{expect_no_rest, malformed};
use crate::{Channel, MAX_DATA, MAX_FRAME, PREFIX, ProtoError, ToGuest, ToHost, validate};

/// Where the first frame in `buf` ends, prefix included; its body is `&buf[PREFIX..end]`. `None`: more bytes are needed.
///
/// # Errors
/// [`ProtoError::TooLong`] as soon as the prefix has arrived.
pub fn split(buf: &[u8]) -> Result<Option<usize>, ProtoError> {
    let Some(prefix) = buf.first_chunk::<PREFIX>() else { return Ok(None) };
    let len = u32::from_le_bytes(*prefix) as usize;
    if len > MAX_FRAME {
        return Err(ProtoError::TooLong { len, max: MAX_FRAME });
    }
    let end = PREFIX + len;
    Ok((buf.len() >= end).then_some(end))
}

/// Reads the body of a frame for the agent.
///
/// # Errors
/// See [`ProtoError`].
pub fn decode_to_guest(body: &[u8]) -> Result<ToGuest<'_>, ProtoError> {
    let (message, rest) = postcard::take_from_bytes(body).map_err(|error| malformed(&error))?;
    expect_no_rest(rest)?;
    validate::to_guest(&message)?;
    Ok(message)
}

/// Reads the body of a frame for the host.
///
/// # Errors
/// See [`ProtoError`].
pub fn decode_to_host(body: &[u8]) -> Result<ToHost<'_>, ProtoError> {
    let (message, rest) = postcard::take_from_bytes(body).map_err(|error| malformed(&error))?;
    expect_no_rest(rest)?;
    validate::to_host(&message)?;
    Ok(message)
}

/// Appends a frame for the agent to `out`.
///
/// # Errors
/// An error that the other side would report: a violated rule, or the length.
pub fn encode_to_guest(message: &ToGuest<'_>, out: &mut Vec<u8>) -> Result<(), ProtoError> {
    validate::to_guest(message)?;
    append(message, out)
}

/// Appends a frame for the host to `out`.
///
/// # Errors
/// An error that the other side would report: a violated rule, or the length.
pub fn encode_to_host(message: &ToHost<'_>, out: &mut Vec<u8>) -> Result<(), ProtoError> {
    validate::to_host(message)?;
    append(message, out)
}

/// The header of a `Data` frame, so that the payload need not be copied: these bytes followed by
/// the payload form the frame.
#[derive(Debug, Clone, Copy)]
pub struct DataHeader {
    bytes: [u8; Self::MAX],
    len: u8,
}

impl DataHeader {
    /// Longest header: prefix, variant, operation, channel, length.
    pub const MAX: usize = PREFIX + 1 + 10 + 1 + 5;

    /// The header's bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    fn new(variant: u8, op: u64, channel: Option<Channel>, payload: usize) -> Self {
        debug_assert!(payload <= MAX_DATA, "a data frame of {payload} bytes");
        let mut header = Self { bytes: [0; Self::MAX], len: PREFIX as u8 };
        header.push(variant);
        header.varint(op);
        if let Some(channel) = channel {
            header.push(channel as u8);
        }
        header.varint(payload as u64);
        let body = usize::from(header.len) - PREFIX + payload;
        header.bytes[..PREFIX].copy_from_slice(&(body as u32).to_le_bytes());
        header
    }

    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }

    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.push((n & 0x7f) as u8 | 0x80);
            n >>= 7;
        }
        self.push(n as u8);
    }
}

/// Header of a [`ToHost::Data`] with a payload of `len` bytes (at most [`MAX_DATA`]).
pub fn host_data_header(op: u64, channel: Channel, len: usize) -> DataHeader {
    DataHeader::new(2, op, Some(channel), len)
}

/// Header of a [`ToGuest::Data`] with a payload of `len` bytes (at most [`MAX_DATA`]).
pub fn guest_data_header(op: u64, len: usize) -> DataHeader {
    DataHeader::new(4, op, None, len)
}

fn append<T: Serialize>(message: &T, out: &mut Vec<u8>) -> Result<(), ProtoError> {
    let start = out.len();
    out.extend_from_slice(&[0; PREFIX]);
    let written = postcard::serialize_with_flavor(message, Appender(out)).map_err(|error| malformed(&error));
    let len = out.len() - start - PREFIX;
    let checked =
        written.and(if len > MAX_FRAME { Err(ProtoError::TooLong { len, max: MAX_FRAME }) } else { Ok(()) });
    match checked {
        Ok(()) => out[start..start + PREFIX].copy_from_slice(&(len as u32).to_le_bytes()),
        Err(_) => out.truncate(start),
    }
    checked
}

/// Lets postcard append to a buffer.
struct Appender<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appender<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
