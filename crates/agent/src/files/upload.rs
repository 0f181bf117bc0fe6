//! Reads an upload from descriptor 0, in the pieces of the protocol. Used by `write` and `archive`.
//!
//! If the pipe ends before the last piece, the sender has disconnected, and the operation fails.

use guest_proto::{FileErrorKind, MAX_PIECE};
use rustix::io::Errno;

use super::failure::FileFailure;

const BUFFER_BYTES: usize = 256 * 1024;
const PREFIX: usize = 4;

/// Whether more than a header is read at once.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ahead {
    Yes,
    No,
}

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
        self.begin_piece(Ahead::Yes)?;
        if self.left > 0 && self.start == self.end {
            self.read(BUFFER_BYTES)?;
        }
        let available = self.left.min(self.end - self.start);
        Ok(&self.buffer[self.start..self.start + available])
    }

    /// Fills `block`, and not completely only at the end of the upload. Returns the number of bytes.
    pub fn fill(&mut self, block: &mut [u8]) -> Result<usize, FileFailure> {
        let mut filled = 0;
        while filled < block.len() {
            // Reads no content into the buffer, from which it would have to be copied.
            self.begin_piece(Ahead::No)?;
            if self.is_over {
                break;
            }
            let room = self.left.min(block.len() - filled);
            let free = &mut block[filled..filled + room];
            let n = if self.start < self.end {
                let n = room.min(self.end - self.start);
                free[..n].copy_from_slice(&self.buffer[self.start..self.start + n]);
                self.start += n;
                n
            } else {
                read_stdin(free)?
            };
            self.left -= n;
            filled += n;
        }
        Ok(filled)
    }

    /// Reads the header of the next piece if the current one was read completely. `ahead`: whether what follows may be buffered.
    fn begin_piece(&mut self, ahead: Ahead) -> Result<(), FileFailure> {
        if self.left > 0 || self.is_over {
            return Ok(());
        }
        while self.end - self.start < PREFIX {
            let missing = PREFIX - (self.end - self.start);
            self.read(if ahead == Ahead::Yes { BUFFER_BYTES } else { missing })?;
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
        Ok(())
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

    /// Reads at most `most` bytes into the buffer.
    fn read(&mut self, most: usize) -> Result<(), FileFailure> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let end = self.buffer.len().min(self.end + most);
        self.end += read_stdin(&mut self.buffer[self.end..end])?;
        Ok(())
    }
}

/// Reads once; at least one byte.
fn read_stdin(into: &mut [u8]) -> Result<usize, FileFailure> {
    loop {
        match rustix::io::read(rustix::stdio::stdin(), &mut *into) {
            Err(Errno::INTR) => {}
            Ok(n) if n > 0 => return Ok(n),
            _ => {
                return Err(FileFailure::new(
                    FileErrorKind::Interrupted,
                    "the upload ended before it was complete",
                ));
            }
        }
    }
}
