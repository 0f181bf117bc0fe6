//! Packs a directory as a tar archive: files, directories and links, with names relative to the directory. Devices,
//! FIFOs, sockets and the content of mount points are left out.
//!
//! Each file has the length that it had when it was opened: one that grows is cut, one that shrinks is padded with
//! zeroes. Entries removed meanwhile are left out. After the first byte a failure truncates the archive, which readers detect.

use guest_proto::{FileKind, FileReply};
use rustix::fd::BorrowedFd;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::failure::FileFailure;
use super::header::{self, BLOCK, Header};
use super::list::next_name;
use super::reply::ReplyWriter;
use super::stat;

/// Limit of nested directories, all of which are open.
const MAX_DEPTH: usize = 512;
const PIECE: usize = 256 * 1024;

/// A directory that is being read.
struct PackedDir {
    dir: Dir,
    /// Length of this directory's part of the current name.
    length: usize,
}

/// Sends a tree as a tar archive. Entries that vanish meanwhile are left out.
pub fn pack(path: &[u8], reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(FileFailure::with(path))?;
    let disk = rustix::fs::fstat(&fd).map_err(FileFailure::with(path))?.st_dev;
    let mut levels = vec![PackedDir { dir: Dir::new(fd).map_err(FileFailure::with(path))?, length: 0 }];
    let mut name = Vec::new();
    let mut buffer = vec![0; PIECE];
    reply.send(&FileReply::Packing)?;
    while let Some(top) = levels.last_mut() {
        name.truncate(top.length);
        let Some(entry) = next_name(&mut top.dir).map_err(|_| FileFailure::Unreportable)? else {
            levels.pop();
            continue;
        };
        name.extend_from_slice(&entry);
        let dir = top.dir.fd().map_err(|_| FileFailure::Unreportable)?;
        let found = match rustix::fs::statat(dir, entry.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::NOENT) => continue,
            Err(_) => return Err(FileFailure::Unreportable),
        };
        match stat::kind(&found) {
            FileKind::File => file(dir, &entry, &name, &mut buffer, reply)?,
            FileKind::Link => {
                if let Some(target) = stat::target_of(dir, entry.as_slice(), &found) {
                    send_header(b'2', &name, &target, 0, &found, reply)?;
                }
            }
            FileKind::Directory if found.st_dev == disk => {
                name.push(b'/');
                send_header(b'5', &name, &[], 0, &found, reply)?;
                if levels.len() >= MAX_DEPTH {
                    return Err(FileFailure::Unreportable);
                }
                let length = name.len();
                match levels.last().and_then(|top| open(top.dir.fd().ok()?, &entry)) {
                    Some(dir) => levels.push(PackedDir { dir, length }),
                    // The entry was replaced.
                    None => continue,
                }
            }
            FileKind::Directory | FileKind::Other => {}
        }
    }
    // Two blocks of zeroes end an archive.
    reply.bytes(&[0; 2 * BLOCK])
}

fn open(dir: BorrowedFd<'_>, name: &[u8]) -> Option<Dir> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?).ok()
}

fn send_header(
    kind: u8,
    name: &[u8],
    link: &[u8],
    size: u64,
    found: &Stat,
    reply: &mut ReplyWriter,
) -> Result<(), FileFailure> {
    let header = Header {
        kind,
        name: name.to_vec(),
        link: link.to_vec(),
        mode: found.st_mode & guest_proto::MODE_BITS,
        size,
        modified_s: found.st_mtime,
        modified_ns: i64::try_from(found.st_mtime_nsec).unwrap_or(0),
    };
    let mut out = Vec::with_capacity(BLOCK);
    header::encode(&header, &mut out);
    reply.bytes(&out)
}

fn file(
    dir: BorrowedFd<'_>,
    entry: &[u8],
    name: &[u8],
    buffer: &mut [u8],
    reply: &mut ReplyWriter,
) -> Result<(), FileFailure> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, entry, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
        Err(_) => return Err(FileFailure::Unreportable),
    };
    let found = rustix::fs::fstat(&file).map_err(|_| FileFailure::Unreportable)?;
    if stat::kind(&found) != FileKind::File {
        return Ok(());
    }
    let size = stat::size(&found);
    send_header(b'0', name, &[], size, &found, reply)?;
    let mut left = size;
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
        let n = match rustix::io::read(&file, &mut buffer[..room]) {
            Ok(0) => {
                buffer[..room].fill(0);
                room
            }
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(_) => return Err(FileFailure::Unreportable),
        };
        reply.bytes(&buffer[..n])?;
        left -= n as u64;
    }
    reply.bytes(&[0; BLOCK][..header::padding(size)])
}
