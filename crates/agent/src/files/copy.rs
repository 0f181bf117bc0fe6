//! Copies a file, a link or a whole directory. Called by `relocate`, which removes what a failure leaves.
//!
//! Owners, modes and times are preserved. Devices cannot be created in a sandbox, so a copy that contains one fails.

use guest_proto::{FileErrorKind, FileKind};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::failure::{FileFailure, shown};
use super::list::next_name;
use super::reply::ReplyWriter;
use super::stat;
use super::write::write_some;

/// Limit of nested directories.
const MAX_DEPTH: usize = 256;
const PIECE: usize = 256 * 1024;

/// A directory that is being copied: source, target, and the attributes to set at the end.
struct CopiedDir {
    from: Dir,
    to: OwnedFd,
    source_stat: Stat,
}

/// Copies a file or a tree. A failure leaves what was copied before.
pub fn copy(from: &[u8], to: &[u8], reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    let source_stat =
        rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(FileFailure::with(from))?;
    let mut levels = Vec::new();
    levels.extend(
        copy_entry(CWD, from, CWD, to, &source_stat, reply).map_err(|error| failure_of(error, from))?,
    );
    while let Some(top) = levels.last_mut() {
        reply.step()?;
        let Some(name) = next_name(&mut top.from).map_err(FileFailure::with(from))? else {
            set_attributes(&top.to, &top.source_stat).map_err(FileFailure::with(to))?;
            levels.pop();
            continue;
        };
        let dir = top.from.fd().map_err(FileFailure::with(from))?;
        let source_stat = match rustix::fs::statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(source_stat) => source_stat,
            // It was removed meanwhile.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(FileFailure::of(errno, from)),
        };
        let deeper = copy_entry(dir, &name, &top.to, &name, &source_stat, reply)
            .map_err(|error| failure_of(error, &name))?;
        levels.extend(deeper);
        if levels.len() > MAX_DEPTH {
            let message = format!("'{}' has more than {MAX_DEPTH} nested directories", shown(from));
            return Err(FileFailure::new(FileErrorKind::Invalid, message));
        }
    }
    Ok(())
}

enum CopyError {
    Errno(Errno),
    Device,
    Reply(FileFailure),
}

impl From<Errno> for CopyError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

fn failure_of(error: CopyError, path: &[u8]) -> FileFailure {
    match error {
        CopyError::Errno(errno) => FileFailure::of(errno, path),
        CopyError::Device => {
            let message =
                format!("'{}' is a device, which cannot be moved to another file system", shown(path));
            FileFailure::new(FileErrorKind::Denied, message)
        }
        CopyError::Reply(failure) => failure,
    }
}

/// Copies one entry. For a directory only the directory itself; the caller then descends into it.
fn copy_entry(
    from: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    new: &[u8],
    source_stat: &Stat,
    reply: &mut ReplyWriter,
) -> Result<Option<CopiedDir>, CopyError> {
    match stat::kind(source_stat) {
        FileKind::Directory => {
            rustix::fs::mkdirat(&to, new, Mode::from_raw_mode(0o700))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let from = Dir::new(rustix::fs::openat(from, name, flags, Mode::empty())?)?;
            let to = rustix::fs::openat(to, new, flags, Mode::empty())?;
            return Ok(Some(CopiedDir { from, to, source_stat: *source_stat }));
        }
        FileKind::File => copy_content(from, name, to, new, source_stat, reply)?,
        FileKind::Link => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(target.as_c_str(), &to, new)?;
        }
        FileKind::Other => {
            let kind = FileType::from_raw_mode(source_stat.st_mode);
            if !matches!(kind, FileType::Fifo | FileType::Socket) {
                return Err(CopyError::Device);
            }
            rustix::fs::mknodat(
                &to,
                new,
                kind,
                Mode::from_raw_mode(source_stat.st_mode & guest_proto::MODE_BITS),
                0,
            )?;
        }
    }
    Ok(None)
}

fn copy_content(
    from: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    new: &[u8],
    source_stat: &Stat,
    reply: &mut ReplyWriter,
) -> Result<(), CopyError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
    if stat::kind(&rustix::fs::fstat(&source)?) != FileKind::File {
        return Err(Errno::NXIO.into());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(to, new, flags, Mode::from_raw_mode(0o600))?;
    let mut buffer = vec![0; PIECE];
    loop {
        reply.step().map_err(CopyError::Reply)?;
        let n = match rustix::io::read(&source, &mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        };
        let mut done = 0;
        while done < n {
            done += write_some(&file, &buffer[done..n])?;
        }
    }
    Ok(set_attributes(&file, source_stat)?)
}

fn set_attributes(to: &OwnedFd, source_stat: &Stat) -> Result<(), Errno> {
    rustix::fs::fchown(to, Some(Uid::from_raw(source_stat.st_uid)), Some(Gid::from_raw(source_stat.st_gid)))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(source_stat.st_mode & guest_proto::MODE_BITS))?;
    rustix::fs::futimens(to, &times(source_stat.st_mtime, source_stat.st_mtime_nsec as i64))
}

/// Timestamps with this modification time and the current access time.
pub fn times(seconds: i64, nanoseconds: i64) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access: now, last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds } }
}
