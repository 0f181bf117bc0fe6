//! Reads a file's content, or a range of it.
//!
//! The announced length is the file's size when it is opened. If the size is unknown (files of `/proc` have 0), the
//! first bytes are read before the announcement; if the file is longer, no length is announced.

use guest_proto::{FileErrorKind, FileKind, FileReply};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::failure::{FileFailure, shown};
use super::reply::ReplyWriter;
use super::stat;

const PIECE: usize = 256 * 1024;

/// The bytes to read.
#[derive(Debug, Clone, Copy)]
pub struct Range {
    pub offset: u64,
    /// `offset` counts from the end.
    pub from_end: bool,
    pub length: Option<u64>,
}

/// Sends a range of a file.
pub fn read(path: &[u8], range: Range, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let file = open(path)?;
    let found = rustix::fs::fstat(&file).map_err(FileFailure::with(path))?;
    let size = stat::size(&found);
    let begin = if range.from_end { size.saturating_sub(range.offset) } else { range.offset };
    let requested = range.length.unwrap_or(u64::MAX);
    let expected = if size > 0 { requested.min(size.saturating_sub(begin)) } else { requested };
    let mut buffer = vec![0; PIECE];
    let room = usize::try_from(expected).unwrap_or(PIECE).min(PIECE);
    let first = fill(&file, &mut buffer[..room], begin).map_err(FileFailure::with(path))?;
    let is_end = first < room;
    if begin > 0 && first == 0 && requested > 0 {
        let message = format!("the range starts after the end of '{}', which has {size} bytes", shown(path));
        return Err(FileFailure::new(FileErrorKind::Range, message));
    }
    let mut wire_stat = stat::to_wire(&found, None);
    let length = if is_end {
        wire_stat.size = begin + first as u64;
        Some(first as u64)
    } else if size > 0 || first as u64 == expected {
        Some(expected)
    } else {
        None
    };
    reply.send(&FileReply::Content { stat: wire_stat, offset: begin, length })?;
    reply.bytes(&buffer[..first])?;
    let mut at = begin + first as u64;
    let mut left = if is_end { 0 } else { expected - first as u64 };
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        // After the announced length an error cannot be reported; the reader sees that bytes are missing.
        let n = fill(&file, &mut buffer[..room], at).map_err(|_| FileFailure::Unreportable)?;
        reply.bytes(&buffer[..n])?;
        at += n as u64;
        left -= n as u64;
        if n < room {
            // The file has become shorter. Without an announced length this is its end.
            return if length.is_some() { Err(FileFailure::Unreportable) } else { Ok(()) };
        }
    }
    Ok(())
}

/// Opens a regular file only: opening a FIFO can have effects.
fn open(path: &[u8]) -> Result<OwnedFd, FileFailure> {
    let found = rustix::fs::statat(CWD, path, AtFlags::empty()).map_err(FileFailure::with(path))?;
    expect_file(stat::kind(&found), path)?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(FileFailure::with(path))?;
    // The file may have been replaced before the open.
    let found = rustix::fs::fstat(&file).map_err(FileFailure::with(path))?;
    expect_file(stat::kind(&found), path)?;
    Ok(file)
}

/// Fails unless it is a regular file, with its type in the message.
pub fn expect_file(kind: FileKind, path: &[u8]) -> Result<(), FileFailure> {
    let is = match kind {
        FileKind::File => return Ok(()),
        FileKind::Directory => "a directory",
        FileKind::Link => "a link",
        FileKind::Other => "a device, a FIFO or a socket",
    };
    Err(FileFailure::new(FileErrorKind::NotAFile, format!("'{}' is {is}, not a file", shown(path))))
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(filled)
}
