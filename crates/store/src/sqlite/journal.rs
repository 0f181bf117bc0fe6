//! The event journal: events that are recorded without waiting for the disk.
//!
//! ```text
//!   append() --one write--> journal file --read by the writer thread--> events, with the last line's number, in one commit
//! ```
//!
//! A written line is in the page cache, so it survives any end of the process; only a power loss may lose the last
//! lines. A truncated line was never acknowledged. A line becomes an event exactly once: the transaction that adds
//! the event also stores the number of the line. The file is the queue, so that pending lines take no memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use base::IgnorePoison;
use rules::TimeMs;
use serde_json::{Value, json};

use super::rows::EventRow;
use crate::{NewEvent, StoreError};

/// Limit of the journal while lines cannot become events; then appends are refused.
const MAX_BYTES: u64 = 256 << 20;
/// The journal is truncated when all lines became events and it has at least this size.
const TRUNCATE_FROM_BYTES: u64 = 256 << 10;
/// The part that one transaction moves.
const PART_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    state: Mutex<JournalState>,
}

#[derive(Debug, Clone, Copy)]
struct JournalState {
    /// The number of the last line.
    last: u64,
    /// Bytes of complete lines, and how many of them became events.
    end: u64,
    moved: u64,
}

/// The fields of an event.
type EventLine = (String, String, String, u64, String, Value, Option<String>);

/// A part of the pending lines, in order.
pub(super) struct PendingLines {
    pub(super) lines: Vec<(u64, EventRow)>,
    to: u64,
}

/// The path of the journal, beside the database.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-notes");
    path.into()
}

impl Journal {
    /// `applied` is the number of the last line that became an event. A truncated line at the end is removed.
    pub(super) fn open(database: &Path, applied: u64) -> std::io::Result<Self> {
        let path = path_of(database);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let (last, end) = valid_lines(&file)?;
        file.set_len(end)?;
        Ok(Self { file, state: Mutex::new(JournalState { last: last.max(applied), end, moved: 0 }) })
    }

    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().ignore_poison()
    }

    pub(super) fn append(&self, event: &NewEvent) -> Result<(), StoreError> {
        let NewEvent { sandbox, account, run, at, kind, data, once } = event;
        let text = json!([sandbox.as_str(), account, run, at.0, kind.as_str(), data, once]).to_string();
        let mut state = self.state();
        if state.end >= MAX_BYTES {
            let reason = "the database accepts no events, and the event journal is full";
            return Err(StoreError::failed("cannot append an event", reason));
        }
        let line = format!("{} {text}\n", state.last + 1);
        if let Err(error) = self.file.write_all_at(line.as_bytes(), state.end) {
            // If this fails too, the next line overwrites it, and the rest is not a valid line.
            let _ = self.file.set_len(state.end);
            return Err(StoreError::failed("cannot append an event", error));
        }
        state.last += 1;
        state.end += line.len() as u64;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.moved == state.end
    }

    /// The pending lines, or the first part of them. Only the writer calls this.
    pub(super) fn part(&self) -> std::io::Result<Option<PendingLines>> {
        let JournalState { moved, end, .. } = *self.state();
        if moved == end {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from((end - moved).min(PART_BYTES)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, moved)?;
        // A line is much shorter than a part, so there is a line end.
        let complete = bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let lines = bytes[..complete].split(|byte| *byte == b'\n').filter_map(parse_line).collect();
        Ok(Some(PendingLines { lines, to: moved + complete as u64 }))
    }

    /// Records that the part was committed.
    pub(super) fn moved(&self, part: &PendingLines) {
        let mut state = self.state();
        state.moved = part.to;
        // If the file cannot be truncated, it grows; the next start skips its lines by their numbers.
        if state.moved == state.end && state.end >= TRUNCATE_FROM_BYTES && self.file.set_len(0).is_ok() {
            (state.moved, state.end) = (0, 0);
        }
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, EventRow)> {
    let text = std::str::from_utf8(line).ok()?;
    let (number, json) = text.split_once(' ')?;
    let (sandbox, account, run, at, kind, data, once): EventLine =
        serde_json::from_str(json).or_else(|_| parse_older(json)).ok()?;
    let event = EventRow { sandbox: sandbox.parse().ok()?, account, run, at: TimeMs(at), kind, data, once };
    Some((number.parse().ok()?, event))
}

/// The format of older daemons, without `once`.
fn parse_older(json: &str) -> serde_json::Result<EventLine> {
    let (sandbox, account, run, at, kind, data) = serde_json::from_str(json)?;
    Ok((sandbox, account, run, at, kind, data, None))
}

/// The number and the end of the last valid line. After a power loss the journal ends with an invalid line.
fn valid_lines(file: &File) -> std::io::Result<(u64, u64)> {
    use std::io::BufRead;
    let (mut last, mut end) = (0, 0);
    let mut lines = std::io::BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = lines.read_until(b'\n', &mut line)?;
        if line.pop() != Some(b'\n') {
            return Ok((last, end));
        }
        let Some((number, _)) = parse_line(&line).filter(|(number, _)| *number > last) else {
            return Ok((last, end));
        };
        (last, end) = (number, end + read as u64);
    }
}
