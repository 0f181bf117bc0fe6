//! The log of an execution: what it printed, when its input was closed, how it ended. Written by its keeper alone.
//!
//! ```text
//! DIR/log.0000000007   DIR/log.0000000008   …    segments; each begins with what was true before it
//! ```
//!
//! An entry is written with one call, and is there when that returns: it outlives the daemon however that ends. Past its bound
//! the log loses its oldest segment. A host that lost its power may have torn the end off; [`Log::open`] cuts it where the last
//! whole entry ends. A write that fails leaves the log as it was.

pub mod cursor;
pub mod entry;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use guest_proto::{Channel, TerminalSize};
use rules::OutputPosition;

use self::entry::Entry;
use super::record::End;

/// A log has about so many segments when it is full.
const SEGMENTS: u64 = 16;
/// More than a whole entry, so that whoever reads a segment by such pieces always gets on.
const PIECE: usize = 256 * 1024;

/// A segment as readers look for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub number: u64,
    pub start: OutputPosition,
    bytes: u64,
}

/// What a log says in all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogState {
    pub printed: OutputPosition,
    pub is_stdin_closed: bool,
    pub size: Option<TerminalSize>,
    pub end: Option<End>,
    /// The event of its end is noted.
    pub is_end_event_recorded: bool,
}

pub struct Log {
    dir: PathBuf,
    max_bytes: u64,
    file: File,
    /// Oldest first; the last is the one that is written.
    segments: VecDeque<Segment>,
    state: LogState,
}

impl Log {
    /// A new one, empty.
    pub fn create(dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let (file, segment) = begin(dir, 0, &LogState::default(), 0)?;
        Ok(Self {
            dir: dir.to_owned(),
            max_bytes,
            file,
            segments: [segment].into(),
            state: LogState::default(),
        })
    }

    /// What another daemon wrote. Of all segments but the last only the beginning is looked at.
    pub fn open(dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut numbers = numbers(dir)?;
        while let Some(number) = numbers.pop() {
            let path = path(dir, number);
            let file = File::options().read(true).write(true).open(&path)?;
            let (state, length) = scan(&file)?;
            let Some((begun, state)) = state else {
                // Not even its beginning is whole: nothing of it was ever state to anybody.
                fs::remove_file(path)?;
                continue;
            };
            file.set_len(length)?;
            let mut segments = VecDeque::new();
            for number in numbers {
                let bytes = fs::metadata(self::path(dir, number))?.len();
                if let Some(begun) = first(&File::open(self::path(dir, number))?)? {
                    segments.push_back(Segment { number, start: begun, bytes });
                }
            }
            segments.push_back(Segment { number, start: begun, bytes: length });
            return Ok(Self { dir: dir.to_owned(), max_bytes, file, segments, state });
        }
        Self::create(dir, max_bytes)
    }

    pub fn state(&self) -> &LogState {
        &self.state
    }

    /// Bytes on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// How far readers may read: the number of the last segment, and its length.
    pub fn end(&self) -> (u64, u64) {
        self.segments.back().map_or((0, 0), |segment| (segment.number, segment.bytes))
    }

    pub fn segments(&self) -> Arc<[Segment]> {
        self.segments.iter().copied().collect()
    }

    /// Writes entries, all or none.
    pub fn append(&mut self, entries: &[Entry<'_>], at_ms: u64) -> io::Result<()> {
        let mut state = self.state.clone();
        let mut bytes = Vec::new();
        for entry in entries {
            match entry {
                Entry::Output(channel, payload) => {
                    for piece in payload.chunks(entry::MAX_PAYLOAD) {
                        entry::encode(&Entry::Output(*channel, piece), at_ms, &mut bytes);
                    }
                }
                entry => entry::encode(entry, at_ms, &mut bytes),
            }
            state.apply(entry);
        }
        self.roll(at_ms)?;
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        if let Err(error) = self.file.write_all_at(&bytes, segment.bytes) {
            // What half came is over-written by the next; a reader does not look beyond what it was state of.
            let _ = self.file.set_len(segment.bytes);
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        self.state = state;
        Ok(())
    }

    /// Has the disk keep it.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Begins another segment where the last is full, and gives the oldest up where there is too much.
    fn roll(&mut self, at_ms: u64) -> io::Result<()> {
        let Some(last) = self.segments.back() else { return Ok(()) };
        // What comes after the end stays with it: who opens the log again looks at the last segment alone.
        if last.bytes < self.max_bytes / SEGMENTS || self.state.end.is_some() {
            return Ok(());
        }
        let (file, segment) = begin(&self.dir, last.number + 1, &self.state, at_ms)?;
        self.file = file;
        self.segments.push_back(segment);
        while self.bytes() > self.max_bytes - self.max_bytes / SEGMENTS && self.segments.len() > 1 {
            let Some(oldest) = self.segments.pop_front() else { break };
            match fs::remove_file(path(&self.dir, oldest.number)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::error!(dir = %self.dir.display(), %error, "could not remove the oldest part of a log");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl LogState {
    fn apply(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Begin { position, is_stdin_closed, size } => {
                self.printed = *position;
                self.is_stdin_closed = *is_stdin_closed;
                self.size = *size;
            }
            Entry::Output(channel, bytes) => add(&mut self.printed, *channel, bytes.len()),
            Entry::StdinClosed => self.is_stdin_closed = true,
            Entry::Resized(size) => self.size = Some(*size),
            Entry::Ended(end) => self.end = Some(end.clone()),
            Entry::EndEventRecorded => self.is_end_event_recorded = true,
        }
    }
}

/// So many bytes further on a channel.
pub fn add(position: &mut OutputPosition, channel: Channel, bytes: usize) {
    match channel {
        Channel::Stdout => position.stdout += bytes as u64,
        Channel::Stderr => position.stderr += bytes as u64,
    }
}

pub fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("log.{number:010}"))
}

fn begin(dir: &Path, number: u64, state: &LogState, at_ms: u64) -> io::Result<(File, Segment)> {
    let mut options = File::options();
    let file =
        options.read(true).write(true).create(true).truncate(true).mode(0o600).open(path(dir, number))?;
    let start = state.printed;
    let mut bytes = Vec::new();
    let begin = Entry::Begin { position: start, is_stdin_closed: state.is_stdin_closed, size: state.size };
    entry::encode(&begin, at_ms, &mut bytes);
    file.write_all_at(&bytes, 0)?;
    Ok((file, Segment { number, start, bytes: bytes.len() as u64 }))
}

fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix("log.")?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// What was true before a segment.
fn first(file: &File) -> io::Result<Option<OutputPosition>> {
    let mut bytes = [0; 64];
    let read = file.read_at(&mut bytes, 0)?;
    match entry::decode(&bytes[..read]) {
        Some((Entry::Begin { position, .. }, ..)) => Ok(Some(position)),
        _ => Ok(None),
    }
}

/// Where a segment begins and what is true after it, with the length of its whole entries.
fn scan(file: &File) -> io::Result<(Option<(OutputPosition, LogState)>, u64)> {
    let Some(begun) = first(file)? else { return Ok((None, 0)) };
    let mut state = LogState::default();
    let mut at = 0;
    let mut bytes = vec![0; PIECE];
    loop {
        let read = file.read_at(&mut bytes, at)?;
        let mut rest = &bytes[..read];
        while let Some((entry, _, length)) = entry::decode(rest) {
            state.apply(&entry);
            rest = &rest[length..];
        }
        let whole = read - rest.len();
        at += whole as u64;
        if whole == 0 {
            return Ok((Some((begun, state)), at));
        }
    }
}

#[cfg(test)]
mod tests;
