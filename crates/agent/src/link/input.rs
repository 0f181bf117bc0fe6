//! Receive buffer of the link: incomplete frames, and frames that are not yet handled.
//!
//! Starts small, doubles while the host sends much, is bounded by the longest frame, and is freed when idle.

use std::os::fd::AsFd;

use guest_proto::{MAX_FRAME, PREFIX, ProtoError};
use rustix::io::Errno;

const SMALL: usize = 4 * 1024;
const LARGE: usize = 256 * 1024;

/// The receive buffer.
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

    /// Free space for the next read: the rest of a frame whose length is known, or a minimum.
    fn wanted(&self) -> usize {
        match self.bytes.first_chunk::<PREFIX>() {
            Some(prefix) => {
                let end = PREFIX + (u32::from_le_bytes(*prefix) as usize).min(MAX_FRAME);
                end.saturating_sub(self.bytes.len()).max(SMALL / 2)
            }
            None => SMALL - PREFIX,
        }
    }

    /// Removes the next complete frame and returns its body as a range for [`InBuf::body`].
    pub fn next(&mut self) -> Result<Option<std::ops::Range<usize>>, ProtoError> {
        let Some(len) = guest_proto::split(&self.bytes[self.head..])? else { return Ok(None) };
        let body = self.head + PREFIX..self.head + len;
        self.head += len;
        Ok(Some(body))
    }

    /// Whether a complete frame is buffered, or an error.
    pub fn has_frame(&self) -> bool {
        !matches!(guest_proto::split(&self.bytes[self.head..]), Ok(None))
    }

    /// The bytes of a range from [`InBuf::next`]; valid until the next read.
    pub fn body(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.head = 0;
    }

    /// Whether it holds memory that an idle agent should not hold.
    pub fn is_large(&self) -> bool {
        self.bytes.capacity() > 2 * SMALL
    }

    /// Frees the memory.
    pub fn shrink(&mut self) {
        self.bytes.drain(..self.head);
        self.head = 0;
        self.bytes.shrink_to(SMALL);
    }
}
