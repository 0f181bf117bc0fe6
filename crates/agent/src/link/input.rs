//! Bytes from the host that are not yet frames, or frames that are not yet dealt with.
//!
//! Starts small, doubles while the host sends much, is bounded by the longest frame, and is given back when idle.

use std::os::fd::AsFd;

use guest_proto::{MAX_FRAME, PREFIX, ProtoError};
use rustix::io::Errno;

const SMALL: usize = 4 * 1024;
const LARGE: usize = 256 * 1024;

/// What has come in.
#[derive(Default)]
pub struct InBuf {
    bytes: Vec<u8>,
    head: usize,
}

impl InBuf {
    /// Reads once into free space. 0 is the end of the stream.
    pub fn read(&mut self, from: impl AsFd) -> Result<usize, Errno> {
        self.bytes.drain(..self.head);
        self.head = 0;
        let wanted = self.wanted();
        if self.bytes.capacity() - self.bytes.len() < wanted {
            self.bytes.reserve_exact(wanted);
        }
        let n = rustix::io::read(from, rustix::buffer::spare_capacity(&mut self.bytes))?;
        if self.bytes.len() == self.bytes.capacity() && self.bytes.capacity() < LARGE {
            self.bytes.reserve_exact(self.bytes.capacity());
        }
        Ok(n)
    }

    /// How much room the next read should have: the rest of a frame whose length is known, or a little.
    fn wanted(&self) -> usize {
        match self.bytes.first_chunk::<PREFIX>() {
            Some(prefix) => {
                let end = PREFIX + (u32::from_le_bytes(*prefix) as usize).min(MAX_FRAME);
                end.saturating_sub(self.bytes.len()).max(SMALL / 2)
            }
            None => SMALL - PREFIX,
        }
    }

    /// Takes the next whole frame's body out, as a range for [`InBuf::body`].
    pub fn next(&mut self) -> Result<Option<std::ops::Range<usize>>, ProtoError> {
        let Some(len) = guest_proto::split(&self.bytes[self.head..])? else { return Ok(None) };
        let body = self.head + PREFIX..self.head + len;
        self.head += len;
        Ok(Some(body))
    }

    /// Whether a frame waits to be taken out, or an error.
    pub fn has_frame(&self) -> bool {
        !matches!(guest_proto::split(&self.bytes[self.head..]), Ok(None))
    }

    /// The bytes of a range from [`InBuf::next`]; good until the next read.
    pub fn body(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.head = 0;
    }

    /// Whether it holds memory that an idle agent should not hold.
    pub fn is_large(&self) -> bool {
        self.bytes.capacity() > 2 * SMALL
    }

    /// Gives memory back.
    pub fn shrink(&mut self) {
        self.bytes.drain(..self.head);
        self.head = 0;
        self.bytes.shrink_to(SMALL);
    }
}
