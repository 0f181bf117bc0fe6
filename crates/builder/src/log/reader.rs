//! Reads the log of a build while it grows.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rules::TimeMs;
use tokio::sync::watch;

use super::{LogEvent, LogLine, LogState};

/// Bytes that a reader reads at a time. Longer than every event: a line of output has at most 64 KiB, each of which may be escaped.
const READ_BYTES: usize = 512 * 1024;

/// Follows a log.
#[derive(Debug)]
pub struct LogReader {
    file: Option<File>,
    position: u64,
    state: watch::Receiver<LogState>,
}

impl LogReader {
    pub(super) fn new(file: Option<File>, position: u64, state: watch::Receiver<LogState>) -> Self {
        Self { file, position, state }
    }

    /// Waits for the next events; `None` after the last. Cancel safe.
    pub async fn next(&mut self) -> io::Result<Option<Vec<LogEvent>>> {
        loop {
            let state = *self.state.borrow_and_update();
            if state.bytes > self.position {
                return self.read(state.bytes).map(Some);
            }
            // The log is gone if its template was deleted.
            if state.is_complete || self.state.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// The next events that are there; `None` if there are none now.
    pub fn next_now(&mut self) -> io::Result<Option<Vec<LogEvent>>> {
        let end = self.state.borrow().bytes;
        if end <= self.position { Ok(None) } else { self.read(end).map(Some) }
    }

    /// Reads some events. From the page cache, so not worth a task of its own.
    fn read(&mut self, end: u64) -> io::Result<Vec<LogEvent>> {
        let Some(file) = &self.file else { return Ok(Vec::new()) };
        let wanted = usize::try_from(end - self.position).unwrap_or(READ_BYTES).min(READ_BYTES);
        let mut bytes = vec![0; wanted];
        file.read_exact_at(&mut bytes, self.position)?;
        let mut events = Vec::new();
        for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
            self.position += line.len() as u64;
            let parsed: LogLine<'_> = serde_json::from_slice(line).map_err(io::Error::other)?;
            events.push(LogEvent {
                kind: parsed.e,
                at: TimeMs(parsed.t),
                data: parsed.d.into_owned(),
                id: self.position,
            });
        }
        if events.is_empty() {
            return Err(io::Error::other("an event of the log is too long"));
        }
        Ok(events)
    }
}
