//! File metadata in the form of the protocol. Used by all of `files`.

use std::os::fd::AsFd;

use guest_proto::{FileKind, FileReply, FileStat, MAX_PATH};
use rustix::fs::{AtFlags, CWD, FileType, Stat};
use rustix::path::Arg;

use super::failure::FileFailure;
use super::reply::ReplyWriter;

/// Whose metadata the path of a symbolic link names.
#[derive(Clone, Copy)]
pub enum LinkUse {
    Link,
    Target,
}

/// Sends the metadata of a path.
pub fn send(path: &[u8], of: LinkUse, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let flags = match of {
        LinkUse::Link => AtFlags::SYMLINK_NOFOLLOW,
        LinkUse::Target => AtFlags::empty(),
    };
    let stat = rustix::fs::statat(CWD, path, flags).map_err(FileFailure::with(path))?;
    let target = target_of(CWD, path, &stat);
    reply.send(&FileReply::Stat(to_wire(&stat, target.as_deref())))
}

/// Converts to the type of the protocol.
pub fn to_wire<'a>(stat: &Stat, target: Option<&'a [u8]>) -> FileStat<'a> {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    FileStat {
        kind: kind(stat),
        mode: stat.st_mode & guest_proto::MODE_BITS,
        size: size(stat),
        modified_ns: stat.st_mtime.saturating_mul(1_000_000_000).saturating_add(nanoseconds),
        inode: stat.st_ino,
        target,
    }
}

/// The type that the host knows.
pub fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

/// The size in bytes; never negative.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The target of a link; `None` if it is not a link, or gone meanwhile.
pub fn target_of(dir: impl AsFd, name: impl Arg, stat: &Stat) -> Option<Vec<u8>> {
    if kind(stat) != FileKind::Link {
        return None;
    }
    let target = rustix::fs::readlinkat(dir, name, Vec::new()).ok()?.into_bytes();
    (target.len() <= MAX_PATH).then_some(target)
}
