//! A file's content, or a range of it.
//!
//! What is promised is what the file has when it is opened. Where it does not say (those of `/proc` say 0) its beginning is read
//! first, and if that is not all nothing is promised.

use guest_proto::{FileErrorKind, FileKind, FileReply};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::fault::{Fault, shown};
use super::say::Say;
use super::stat;

const PIECE: usize = 256 * 1024;

/// Which bytes.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub offset: u64,
    /// `offset` counts from the end.
    pub from_end: bool,
    pub length: Option<u64>,
}

pub fn read(path: &[u8], range: Range, say: &mut Say) -> Result<(), Fault> {
    let file = open(path)?;
    let found = rustix::fs::fstat(&file).map_err(Fault::with(path))?;
    let size = stat::size(&found);
    let begin = if range.from_end { size.saturating_sub(range.offset) } else { range.offset };
    let asked = range.length.unwrap_or(u64::MAX);
    let most = if size > 0 { asked.min(size.saturating_sub(begin)) } else { asked };
    let mut buffer = vec![0; PIECE];
    let room = usize::try_from(most).unwrap_or(PIECE).min(PIECE);
    let first = fill(&file, &mut buffer[..room], begin).map_err(Fault::with(path))?;
    let is_end = first < room;
    if begin > 0 && first == 0 && asked > 0 {
        let message = format!("'{}' has {size} bytes; the range begins behind them", shown(path));
        return Err(Fault::new(FileErrorKind::Range, message));
    }
    let mut described = stat::described(&found, None);
    let length = if is_end {
        described.size = begin + first as u64;
        Some(first as u64)
    } else if size > 0 || first as u64 == most {
        Some(most)
    } else {
        None
    };
    say.reply(&FileReply::Content { stat: described, offset: begin, length })?;
    say.bytes(&buffer[..first])?;
    let mut at = begin + first as u64;
    let mut left = if is_end { 0 } else { most - first as u64 };
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        // Behind the promise there is no room for words; the reader sees that it is not whole.
        let n = fill(&file, &mut buffer[..room], at).map_err(|_| Fault::Gone)?;
        say.bytes(&buffer[..n])?;
        at += n as u64;
        left -= n as u64;
        if n < room {
            // It is shorter than it was. Without a promise that is its end.
            return if length.is_some() { Err(Fault::Gone) } else { Ok(()) };
        }
    }
    Ok(())
}

/// Opens a file, and nothing that is none: opening can wake whoever waits at a fifo.
fn open(path: &[u8]) -> Result<OwnedFd, Fault> {
    let found = rustix::fs::statat(CWD, path, AtFlags::empty()).map_err(Fault::with(path))?;
    expect_file(stat::kind(&found), path)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(Fault::with(path))?;
    // It may have become something else in between.
    let found = rustix::fs::fstat(&file).map_err(Fault::with(path))?;
    expect_file(stat::kind(&found), path)?;
    Ok(file)
}

/// A file, or the fault that says what it is instead.
pub fn expect_file(kind: FileKind, path: &[u8]) -> Result<(), Fault> {
    let is = match kind {
        FileKind::File => return Ok(()),
        FileKind::Directory => "a directory",
        FileKind::Link => "a link",
        FileKind::Other => "a device, a fifo or a socket",
    };
    Err(Fault::new(FileErrorKind::NotAFile, format!("'{}' is {is}, not a file", shown(path))))
}

/// Reads until there is no room, or no more.
fn fill(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut have = 0;
    while have < buffer.len() {
        match rustix::io::pread(file, &mut buffer[have..], offset + have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(have)
}
