//! What an errand says, on descriptor 1. Used by all of `files`.
//!
//! A reader that is slow holds the errand up; one that has gone ends it ([`Fault::Gone`]).

use std::time::{Duration, Instant};

use guest_proto::{FileErrorKind, FileReply};
use rustix::io::Errno;

use super::fault::Fault;

/// Said at once when there is so much.
const FULL: usize = 128 * 1024;
/// A host waits longer than this.
const WORKING_EVERY: Duration = Duration::from_secs(5);
/// Steps between two looks at the clock.
const STEPS: u32 = 256;

/// The way out.
pub struct Say {
    waiting: Vec<u8>,
    said: Instant,
    steps: u32,
}

impl Say {
    pub fn new() -> Self {
        Self { waiting: Vec::new(), said: Instant::now(), steps: 0 }
    }

    /// Says it soon.
    pub fn reply(&mut self, reply: &FileReply<'_>) -> Result<(), Fault> {
        let put = guest_proto::encode_reply(reply, &mut self.waiting);
        put.map_err(|error| Fault::new(FileErrorKind::Failed, format!("an answer: {error}")))?;
        self.flush_if_full()
    }

    /// Raw bytes, soon.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        if bytes.len() >= FULL {
            self.flush()?;
            return self.write(bytes);
        }
        self.waiting.extend_from_slice(bytes);
        self.flush_if_full()
    }

    /// One step of something long was done.
    pub fn step(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        if self.steps.is_multiple_of(STEPS) && self.said.elapsed() >= WORKING_EVERY {
            self.reply(&FileReply::Working)?;
            self.flush()?;
        }
        Ok(())
    }

    /// The last word; whether anybody hears it does not matter.
    pub fn fault(&mut self, kind: FileErrorKind, message: &str) {
        let message: String = message.chars().take(guest_proto::MAX_MESSAGE / 4).collect();
        let _ = self.reply(&FileReply::Failed { kind, message: &message }).and_then(|()| self.flush());
    }

    pub fn flush(&mut self) -> Result<(), Fault> {
        let waiting = std::mem::take(&mut self.waiting);
        self.write(&waiting)?;
        self.waiting = waiting;
        self.waiting.clear();
        Ok(())
    }

    fn flush_if_full(&mut self) -> Result<(), Fault> {
        if self.waiting.len() >= FULL { self.flush() } else { Ok(()) }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<(), Fault> {
        self.said = Instant::now();
        while !bytes.is_empty() {
            match rustix::io::write(rustix::stdio::stdout(), bytes) {
                Ok(n) => bytes = &bytes[n..],
                Err(Errno::INTR) => {}
                Err(_) => return Err(Fault::Gone),
            }
        }
        Ok(())
    }
}
