//! The journal of notes: events that are to be kept without waiting for the disk.
//!
//! ```text
//!   note() --one write--> journal file --read back by the writer thread--> events, with the last line's number, in one commit
//! ```
//!
//! What was written is with the kernel, so it outlives the process however that ends; only a host that loses its power may lose
//! the last moment. A line that was cut off was never acknowledged. A line becomes an event once: its number is compared
//! with the last one that did, in the transaction that makes it one. The file is the queue, so that notes that wait take no memory.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rules::TimeMs;
use serde_json::{Value, json};

use crate::{NewEvent, StoreError};

/// When notes cannot become events for so long that they fill this, further ones are refused.
const MOST_BYTES: u64 = 256 << 20;
/// Emptied when all of it became events and it is this long.
const EMPTIED_BYTES: u64 = 256 << 10;
/// What one transaction takes of it.
const PART_BYTES: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct Journal {
    file: File,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// The number of the last line.
    last: u64,
    /// Bytes of whole lines, and how many of them became events.
    end: u64,
    moved: u64,
}

/// The fields of an event.
type Line = (String, String, String, u64, String, Value, Option<String>);

/// Notes that wait, in their order.
pub(super) struct Part {
    pub(super) notes: Vec<(u64, NewEvent)>,
    to: u64,
}

/// Beside the database.
pub(super) fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-notes");
    path.into()
}

impl Journal {
    /// `applied` is the number of the last line that became an event. What a death cut off at the end goes.
    pub(super) fn open(database: &Path, applied: u64) -> std::io::Result<Self> {
        let path = path_of(database);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let (last, end) = whole_lines(&file)?;
        file.set_len(end)?;
        Ok(Self { file, state: Mutex::new(State { last: last.max(applied), end, moved: 0 }) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn append(&self, event: &NewEvent) -> Result<(), StoreError> {
        let NewEvent { sandbox, account, run, at, kind, data, once } = event;
        let text = json!([sandbox.as_str(), account, run, at.0, kind, data, once]).to_string();
        let mut state = self.state();
        if state.end >= MOST_BYTES {
            let reason = "the disk takes no events, and the journal of those that wait is full";
            return Err(StoreError::failed("cannot note an event", reason));
        }
        let line = format!("{} {text}\n", state.last + 1);
        if let Err(error) = self.file.write_all_at(line.as_bytes(), state.end) {
            // Were this to fail too, the next line goes over what is there, and what sticks out is no line.
            let _ = self.file.set_len(state.end);
            return Err(StoreError::failed("cannot note an event", error));
        }
        state.last += 1;
        state.end += line.len() as u64;
        Ok(())
    }

    pub(super) fn is_empty(&self) -> bool {
        let state = self.state();
        state.moved == state.end
    }

    /// What waits, or the first part of it. Called by the writer alone.
    pub(super) fn part(&self) -> std::io::Result<Option<Part>> {
        let State { moved, end, .. } = *self.state();
        if moved == end {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from((end - moved).min(PART_BYTES)).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, moved)?;
        // A line is far shorter than a part, so there is an end of one.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
        let notes = bytes[..whole].split(|byte| *byte == b'\n').filter_map(note).collect();
        Ok(Some(Part { notes, to: moved + whole as u64 }))
    }

    /// The part is committed.
    pub(super) fn moved(&self, part: &Part) {
        let mut state = self.state();
        state.moved = part.to;
        // Where it cannot be emptied it goes on at its end, and is passed over at the next start by its numbers.
        if state.moved == state.end && state.end >= EMPTIED_BYTES && self.file.set_len(0).is_ok() {
            (state.moved, state.end) = (0, 0);
        }
    }
}

fn note(line: &[u8]) -> Option<(u64, NewEvent)> {
    let text = std::str::from_utf8(line).ok()?;
    let (number, json) = text.split_once(' ')?;
    let (sandbox, account, run, at, kind, data, once): Line =
        serde_json::from_str(json).or_else(|_| older(json)).ok()?;
    let event = NewEvent { sandbox: sandbox.parse().ok()?, account, run, at: TimeMs(at), kind, data, once };
    Some((number.parse().ok()?, event))
}

/// As a daemon left it that knew of no events that are there once.
fn older(json: &str) -> serde_json::Result<Line> {
    let (sandbox, account, run, at, kind, data) = serde_json::from_str(json)?;
    Ok((sandbox, account, run, at, kind, data, None))
}

/// The number of the last line that can be read, and where it ends. A line that cannot be read ends the journal: a host lost
/// its power there.
fn whole_lines(file: &File) -> std::io::Result<(u64, u64)> {
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
        let Some((number, _)) = note(&line).filter(|(number, _)| *number > last) else {
            return Ok((last, end));
        };
        (last, end) = (number, end + read as u64);
    }
}
