//! Writes the replies of a file operation to descriptor 1. Used by all of `files`.
//!
//! A slow reader blocks the operation; a closed pipe ends it ([`FileFailure::Unreportable`]).

use std::time::{Duration, Instant};

use guest_proto::{FileErrorKind, FileReply};
use rustix::io::Errno;

use super::failure::FileFailure;

/// Bytes after which the buffer is flushed.
const FULL: usize = 128 * 1024;
/// Interval of progress replies; shorter than the host's timeout.
const WORKING_EVERY: Duration = Duration::from_secs(5);
/// Steps between two readings of the clock.
const STEPS: u32 = 256;

/// The output of a file operation.
pub struct ReplyWriter {
    buffer: Vec<u8>,
    last_write: Instant,
    steps: u32,
}

impl ReplyWriter {
    pub fn new() -> Self {
        Self { buffer: Vec::new(), last_write: Instant::now(), steps: 0 }
    }

    /// Buffers a reply.
    pub fn send(&mut self, message: &FileReply<'_>) -> Result<(), FileFailure> {
        let put = guest_proto::encode_reply(message, &mut self.buffer);
        put.map_err(|error| {
            FileFailure::new(FileErrorKind::Failed, format!("cannot encode a reply: {error}"))
        })?;
        self.flush_if_full()
    }

    /// Buffers raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), FileFailure> {
        if bytes.len() >= FULL {
            self.flush()?;
            return self.write(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        self.flush_if_full()
    }

    /// Reports progress if it is time; called after each step of long work.
    pub fn step(&mut self) -> Result<(), FileFailure> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) && self.last_write.elapsed() >= WORKING_EVERY {
            self.send(&FileReply::Working)?;
            self.flush()?;
        }
        Ok(())
    }

    /// Sends the final error; best effort.
    pub fn failure(&mut self, kind: FileErrorKind, message: &str) {
        let message: String = message.chars().take(guest_proto::MAX_MESSAGE / 4).collect();
        let _ = self.send(&FileReply::Failed { kind, message: &message }).and_then(|()| self.flush());
    }

    pub fn flush(&mut self) -> Result<(), FileFailure> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), FileFailure> {
        if self.buffer.len() >= FULL { self.flush() } else { Ok(()) }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), FileFailure> {
        self.last_write = Instant::now();
        while !bytes.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(_) => return Err(FileFailure::Unreportable),
            }
        }
        Ok(())
    }
}
