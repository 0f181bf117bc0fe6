//! The log of an execution: output, changes of its input, and its end. Only the log writer of the execution writes it.
//!
//! ```text
//! DIR/log.0000000007   DIR/log.0000000008   ...    segments; each begins with the state before it
//! DIR/unread                                       exists if output was dropped and nobody has read since
//! ```
//!
//! An entry is written with one system call and survives any end of the daemon. Beyond its size limit the log drops its oldest
//! segments, but none that a reader needs ([`needed_from`]). After a power loss of the host [`Log::open`] truncates the log behind
//! the last complete entry. A failed write leaves the log unchanged.

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

/// The number of segments of a full log.
const SEGMENTS: u64 = 16;
/// The part of a log that stays behind the slowest reader, in sixteenths. Its client has not received all that the reader has read,
/// and reads it again if it loses its connection.
const REPLAYED: u64 = 11;
/// The name of the file that says that nobody reads.
const UNREAD: &str = "unread";
/// The size of reads. Larger than any entry, so that each read has a complete one.
const PIECE: usize = 256 * 1024;

/// A segment of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    pub number: u64,
    pub start: OutputPosition,
    bytes: u64,
}

/// The state of an execution according to its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogState {
    pub printed: OutputPosition,
    pub is_stdin_closed: bool,
    pub size: Option<TerminalSize>,
    /// Of a process.
    pub pid: Option<u32>,
    pub end: Option<End>,
    /// The end event is in the event journal.
    pub is_end_event_recorded: bool,
}

pub struct Log {
    dir: PathBuf,
    max_bytes: u64,
    file: File,
    /// Oldest first. The last one is written to.
    segments: VecDeque<Segment>,
    state: LogState,
    is_unread: bool,
}

impl Log {
    /// Creates an empty log.
    pub fn create(dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let (file, segment) = begin(dir, 0, &LogState::default(), 0)?;
        Ok(Self {
            dir: dir.to_owned(),
            max_bytes,
            file,
            segments: [segment].into(),
            state: LogState::default(),
            is_unread: false,
        })
    }

    /// Opens the log of an earlier daemon. Scans the last segment, and reads only the first entry of all others.
    pub fn open(dir: &Path, max_bytes: u64) -> io::Result<Self> {
        let mut numbers = numbers(dir)?;
        while let Some(number) = numbers.pop() {
            let path = path(dir, number);
            let file = File::options().read(true).write(true).open(&path)?;
            let (state, length) = scan(&file)?;
            let Some((begun, state)) = state else {
                // The first entry is incomplete, so no entry of this segment was ever acknowledged.
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
            let is_unread = dir.join(UNREAD).exists();
            return Ok(Self { dir: dir.to_owned(), max_bytes, file, segments, state, is_unread });
        }
        Self::create(dir, max_bytes)
    }

    pub fn state(&self) -> &LogState {
        &self.state
    }

    /// The size on disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// The position up to which readers may read: the number of the last segment, and its length.
    pub fn end(&self) -> (u64, u64) {
        self.segments.back().map_or((0, 0), |segment| (segment.number, segment.bytes))
    }

    pub fn segments(&self) -> Arc<[Segment]> {
        self.segments.iter().copied().collect()
    }

    pub fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Whether output was dropped when no reader needed any, and none has come since. Survives the daemon: the next one must not make the
    /// command wait for a reader that never comes.
    pub fn is_unread(&self) -> bool {
        self.is_unread
    }

    /// The newest segment that the next output has to drop to stay within the size limit; `None` if it has to drop none.
    pub fn next_dropped(&self) -> Option<u64> {
        // An entry without output, such as a resize, has begun the last segment, and dropped none.
        let complete = self.bytes() - self.segments.back().map_or(0, |last| last.bytes);
        let is_full = self.is_segment_full() || complete > full_bytes(self.max_bytes);
        let excess = if is_full { self.excess() } else { 0 };
        excess.checked_sub(1).and_then(|newest| self.segments.get(newest)).map(|segment| segment.number)
    }

    /// Writes all entries or none. No output is needed.
    pub fn append(&mut self, entries: &[Entry<'_>], at_ms: u64) -> io::Result<()> {
        self.append_keeping(entries, at_ms, u64::MAX)
    }

    /// Writes all entries or none. Keeps the segments from `kept_from` on, even if the log then exceeds its size limit, but not
    /// beyond twice of it: an agent that prints after its command was killed must not fill the disk.
    pub fn append_keeping(&mut self, entries: &[Entry<'_>], at_ms: u64, kept_from: u64) -> io::Result<()> {
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
        if self.is_unread && kept_from != u64::MAX {
            self.is_unread = false;
            report_mark(&self.dir, fs::remove_file(self.dir.join(UNREAD)));
        }
        self.roll(at_ms, kept_from)?;
        let Some(segment) = self.segments.back_mut() else { return Ok(()) };
        if let Err(error) = self.file.write_all_at(&bytes, segment.bytes) {
            // The next write overwrites partial entries. Readers do not read beyond `end`.
            let _ = self.file.set_len(segment.bytes);
            return Err(error);
        }
        segment.bytes += bytes.len() as u64;
        self.state = state;
        Ok(())
    }

    /// Flushes the log to the disk.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Entries after the end stay in its segment, because only the last segment is scanned when the log is opened.
    fn is_segment_full(&self) -> bool {
        let last = self.segments.back();
        last.is_some_and(|last| last.bytes >= self.max_bytes / SEGMENTS) && self.state.end.is_none()
    }

    /// How many of the oldest segments exceed the size limit when another segment begins. The last one stays: its end may be unread.
    fn excess(&self) -> usize {
        let limit = full_bytes(self.max_bytes);
        let mut bytes = self.bytes();
        let exceeds = |segment: &&Segment| {
            let exceeds = bytes > limit;
            bytes -= segment.bytes;
            exceeds
        };
        self.segments.iter().take(self.segments.len().saturating_sub(1)).take_while(exceeds).count()
    }

    /// Starts another segment if the last one is full, and drops the oldest segments beyond the size limit that are not kept.
    fn roll(&mut self, at_ms: u64, kept_from: u64) -> io::Result<()> {
        let Some(last) = self.segments.back().filter(|_| self.is_segment_full()) else { return Ok(()) };
        let excess = self.excess();
        let (file, segment) = begin(&self.dir, last.number + 1, &self.state, at_ms)?;
        self.file = file;
        self.segments.push_back(segment);
        for _ in 0..excess {
            let is_bounded = self.bytes() <= 2 * self.max_bytes;
            if self.segments.front().is_none_or(|oldest| oldest.number >= kept_from && is_bounded) {
                break;
            }
            let Some(oldest) = self.segments.pop_front() else { break };
            match fs::remove_file(path(&self.dir, oldest.number)) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    tracing::error!(dir = %self.dir.display(), %error, "could not remove the oldest segment of a log");
                }
                _ => {}
            }
        }
        if excess > 0 && kept_from == u64::MAX && !self.is_unread {
            self.is_unread = true;
            report_mark(&self.dir, fs::write(self.dir.join(UNREAD), "\n"));
        }
        Ok(())
    }
}

/// The output matters more than the mark.
fn report_mark(dir: &Path, marked: io::Result<()>) {
    if let Err(error) = marked {
        tracing::warn!(dir = %dir.display(), %error, "could not record whether the output of an execution is read");
    }
}

/// Copies the mark of an unread log, if it has one.
pub fn copy_mark(from: &Path, to: &Path) -> io::Result<()> {
    base::allow_missing(fs::copy(from.join(UNREAD), to.join(UNREAD)).map(drop))
}

/// The size of a log of at most `max_bytes` when another segment begins.
fn full_bytes(max_bytes: u64) -> u64 {
    max_bytes - max_bytes / SEGMENTS
}

/// The first segment that a reader in segment `current` needs, in a log of at most `max_bytes`: that of what its client may read
/// again. A reader in the last segment never keeps the log from beginning another one.
pub fn needed_from(segments: &[Segment], current: u64, max_bytes: u64) -> u64 {
    let last_bytes = segments.last().map_or(0, |last| last.bytes);
    let mut left = (max_bytes / SEGMENTS * REPLAYED).min(full_bytes(max_bytes).saturating_sub(last_bytes));
    let before = segments.iter().rev().filter(|segment| segment.number < current);
    let replayed = before.take_while(|segment| {
        let fits = segment.bytes <= left;
        left = left.saturating_sub(segment.bytes);
        fits
    });
    replayed.last().map_or(current, |first| first.number)
}

impl LogState {
    fn apply(&mut self, entry: &Entry<'_>) {
        match entry {
            Entry::Begin { position, is_stdin_closed, size, pid } => {
                self.pid = *pid;
                self.printed = *position;
                self.is_stdin_closed = *is_stdin_closed;
                self.size = *size;
            }
            Entry::Output(channel, bytes) => add(&mut self.printed, *channel, bytes.len()),
            Entry::StdinClosed => self.is_stdin_closed = true,
            Entry::Resized(size) => self.size = Some(*size),
            Entry::Ended(end) => self.end = Some(end.clone()),
            Entry::Running(pid) => self.pid = Some(*pid),
            Entry::EndEventRecorded => self.is_end_event_recorded = true,
        }
    }
}

/// Advances a position by bytes of a channel.
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
    let (is_stdin_closed, size, pid) = (state.is_stdin_closed, state.size, state.pid);
    let begin = Entry::Begin { position: start, is_stdin_closed, size, pid };
    entry::encode(&begin, at_ms, &mut bytes);
    file.write_all_at(&bytes, 0)?;
    Ok((file, Segment { number, start, bytes: bytes.len() as u64 }))
}

pub fn numbers(dir: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.strip_prefix("log.")?.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The position at the start of a segment; `None` if its first entry is incomplete.
fn first(file: &File) -> io::Result<Option<OutputPosition>> {
    let mut bytes = [0; 64];
    let read = file.read_at(&mut bytes, 0)?;
    match entry::decode(&bytes[..read]) {
        Some((Entry::Begin { position, .. }, ..)) => Ok(Some(position)),
        _ => Ok(None),
    }
}

/// The position at the start of a segment, the state behind it, and the length of its complete entries.
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
