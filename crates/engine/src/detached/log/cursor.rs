//! A position in a log, and reading from it. Blocking.
//!
//! A cursor reads up to the published end of the log. A dropped segment that the cursor has open is read to its end. Otherwise the cursor
//! continues with the oldest existing segment and reports the gap, as it does for a damaged part.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::Bytes;
use guest_proto::Channel;
use rules::{OutputPosition, TimeMs};

use super::entry::{self, Entry};
use super::{Segment, add, path};

/// The size of reads.
const PIECE: u64 = 256 * 1024;

/// A piece of output, or a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogPiece {
    Output { channel: Channel, bytes: Bytes, at: TimeMs, position: OutputPosition },
    Dropped { position: OutputPosition },
}

pub struct Cursor {
    dir: PathBuf,
    open: Option<Open>,
    /// The position up to which the reader has all output.
    seen: OutputPosition,
}

/// The open segment.
struct Open {
    number: u64,
    file: File,
    offset: u64,
    /// The position at the offset.
    at: OutputPosition,
}

/// The segment in which a reader that has everything up to `seen` begins: the last one that starts within that, or else the oldest.
pub fn first_segment(segments: &[Segment], seen: OutputPosition) -> u64 {
    let known = segments.iter().rev().find(|segment| seen.covers(segment.start)).or(segments.first());
    known.map_or(0, |known| known.number)
}

impl Cursor {
    pub fn new(dir: PathBuf, seen: OutputPosition) -> Self {
        Self { dir, open: None, seen }
    }

    /// The number of the open segment; `None` before the first read.
    pub fn segment(&self) -> Option<u64> {
        self.open.as_ref().map(|open| open.number)
    }

    /// The gap up to `printed`, for output that cannot be read; `None` if there is none.
    pub fn rest_up_to(&self, printed: OutputPosition) -> Option<LogPiece> {
        let position = self.seen.max(printed);
        (position != self.seen).then_some(LogPiece::Dropped { position })
    }

    /// Whether everything up to `end` is read.
    pub fn is_at(&self, end: (u64, u64)) -> bool {
        self.open.as_ref().is_some_and(|open| (open.number, open.offset) >= end)
    }

    /// Reads the next output that the reader does not have; empty at the end.
    pub fn read(&mut self, segments: &[Segment], end: (u64, u64)) -> io::Result<VecDeque<LogPiece>> {
        let mut found = VecDeque::new();
        while found.is_empty() && !self.is_at(end) {
            match self.open.take() {
                None => self.enter(segments, &mut found)?,
                Some(open) => self.read_segment(open, segments, end, &mut found)?,
            }
        }
        Ok(found)
    }

    fn enter(&mut self, segments: &[Segment], found: &mut VecDeque<LogPiece>) -> io::Result<()> {
        self.enter_from(segments, first_segment(segments, self.seen), found)
    }

    /// Opens the first existing segment with this number or a later one.
    fn enter_from(
        &mut self,
        segments: &[Segment],
        number: u64,
        found: &mut VecDeque<LogPiece>,
    ) -> io::Result<()> {
        for segment in segments.iter().skip_while(|segment| segment.number < number) {
            if self.try_enter(segment.number, segment.start, found)? {
                return Ok(());
            }
        }
        Err(io::Error::new(ErrorKind::NotFound, "the log of an execution is gone"))
    }

    /// False if the segment was dropped.
    fn try_enter(
        &mut self,
        number: u64,
        start: OutputPosition,
        found: &mut VecDeque<LogPiece>,
    ) -> io::Result<bool> {
        let file = match File::open(path(&self.dir, number)) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        if !self.seen.covers(start) {
            self.seen = self.seen.max(start);
            found.push_back(LogPiece::Dropped { position: self.seen });
        }
        self.open = Some(Open { number, file, offset: 0, at: start });
        Ok(true)
    }

    fn read_segment(
        &mut self,
        mut open: Open,
        segments: &[Segment],
        log_end: (u64, u64),
        found: &mut VecDeque<LogPiece>,
    ) -> io::Result<()> {
        let end = if open.number == log_end.0 { log_end.1 } else { open.file.metadata()?.len() };
        let mut bytes = vec![0; PIECE.min(end.saturating_sub(open.offset)) as usize];
        let read = open.file.read_at(&mut bytes, open.offset)?;
        let whole = self.take(&bytes[..read], &mut open.at, found);
        open.offset += whole as u64;
        if whole == 0 && open.number < log_end.0 {
            // The segment ends here or is damaged. The next one starts with its position.
            return self.enter_from(segments, open.number + 1, found);
        }
        if whole == 0 {
            return Err(io::Error::new(ErrorKind::InvalidData, "the log of an execution is damaged"));
        }
        self.open = Some(open);
        Ok(())
    }

    /// Takes complete entries. Returns their size.
    fn take(&mut self, bytes: &[u8], at: &mut OutputPosition, found: &mut VecDeque<LogPiece>) -> usize {
        let mut rest = bytes;
        while let Some((entry, at_ms, length)) = entry::decode(rest) {
            if let Entry::Output(channel, bytes) = entry {
                add(at, channel, bytes.len());
                let (now, seen) = match channel {
                    Channel::Stdout => (at.stdout, &mut self.seen.stdout),
                    Channel::Stderr => (at.stderr, &mut self.seen.stderr),
                };
                let fresh = usize::try_from(now.saturating_sub(*seen)).unwrap_or(usize::MAX).min(bytes.len());
                if fresh > 0 {
                    *seen = now;
                    let bytes = Bytes::copy_from_slice(&bytes[bytes.len() - fresh..]);
                    let (at, position) = (TimeMs(at_ms), self.seen);
                    found.push_back(LogPiece::Output { channel, bytes, at, position });
                }
            }
            rest = &rest[length..];
        }
        bytes.len() - rest.len()
    }
}
