//! Reads an upload from descriptor 0, in the pieces of the protocol. Used by `write` and `archive`.
//!
//! If the pipe ends before the last piece, the sender has disconnected, and the operation fails.

use guest_proto::{FileErrorKind, MAX_PIECE};
use rustix::io::Errno;

use super::failure::FileFailure;

const BUFFER_BYTES: usize = 256 * 1024;
const PREFIX: usize = 4;

/// The upload of a file operation.
pub struct Upload {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Unread bytes of the current piece.
    left: usize,
    is_over: bool,
}

impl Upload {
    pub fn new() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES], start: 0, end: 0, left: 0, is_over: false }
    }

    /// The available bytes, at least one; empty at the end of the upload.
    pub fn next(&mut self) -> Result<&[u8], FileFailure> {
        if self.left == 0 && !self.is_over {
            while self.end - self.start < PREFIX {
                self.read()?;
            }
            let mut length = [0; PREFIX];
            length.copy_from_slice(&self.buffer[self.start..self.start + PREFIX]);
            self.start += PREFIX;
            self.left = u32::from_le_bytes(length) as usize;
            self.is_over = self.left == 0;
            if self.left > MAX_PIECE {
                return Err(FileFailure::new(
                    FileErrorKind::Failed,
                    "a piece of the upload is longer than allowed",
                ));
            }
        }
        if self.left > 0 && self.start == self.end {
            self.read()?;
        }
        let available = self.left.min(self.end - self.start);
        Ok(&self.buffer[self.start..self.start + available])
    }

    /// Marks this many bytes as read.
    pub fn used(&mut self, bytes: usize) {
        let bytes = bytes.min(self.left);
        self.start += bytes;
        self.left -= bytes;
    }

    /// Whether bytes were read that [`Upload::next`] has not returned yet.
    pub fn has_buffered(&self) -> bool {
        self.start < self.end
    }

    fn read(&mut self) -> Result<(), FileFailure> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        loop {
            match rustix::io::read(rustix::stdio::stdin(), &mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(n) => {
                    self.end += n;
                    return Ok(());
                }
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        Err(FileFailure::new(FileErrorKind::Interrupted, "the upload ended before it was complete"))
    }
}
