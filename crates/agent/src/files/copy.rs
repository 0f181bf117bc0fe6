//! Copies a file, a link or a whole directory beside another. Called by `relocate`; what a failure leaves is its to remove.
//!
//! Owners, modes and times are kept. Devices are not copied, they cannot be made inside; with one the copy fails.

use guest_proto::{FileErrorKind, FileKind};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::fault::{Fault, shown};
use super::list::next_name;
use super::say::Say;
use super::stat;
use super::write::write_some;

/// Directories within directories.
const DEPTH: usize = 256;
const PIECE: usize = 256 * 1024;

/// A directory under way: where it is read, where it is made, and what it is to look like in the end.
struct Level {
    from: Dir,
    to: OwnedFd,
    like: Stat,
}

pub fn copy(from: &[u8], to: &[u8], say: &mut Say) -> Result<(), Fault> {
    let like = rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(Fault::with(from))?;
    let mut levels = Vec::new();
    levels.extend(one(CWD, from, CWD, to, &like, say).map_err(|error| told(error, from))?);
    while let Some(top) = levels.last_mut() {
        say.step()?;
        let Some(name) = next_name(&mut top.from).map_err(Fault::with(from))? else {
            dress(&top.to, &top.like).map_err(Fault::with(to))?;
            levels.pop();
            continue;
        };
        let dir = top.from.fd().map_err(Fault::with(from))?;
        let like = match rustix::fs::statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(like) => like,
            // It has gone meanwhile.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(Fault::of(errno, from)),
        };
        let deeper = one(dir, &name, &top.to, &name, &like, say).map_err(|error| told(error, &name))?;
        levels.extend(deeper);
        if levels.len() > DEPTH {
            let message = format!("'{}' has more than {DEPTH} directories within each other", shown(from));
            return Err(Fault::new(FileErrorKind::Invalid, message));
        }
    }
    Ok(())
}

enum Trouble {
    Errno(Errno),
    Device,
    Gone(Fault),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

fn told(trouble: Trouble, path: &[u8]) -> Fault {
    match trouble {
        Trouble::Errno(errno) => Fault::of(errno, path),
        Trouble::Device => {
            let message =
                format!("'{}' is a device, which cannot be moved to another file system", shown(path));
            Fault::new(FileErrorKind::Denied, message)
        }
        Trouble::Gone(fault) => fault,
    }
}

/// Copies one entry. Of a directory only itself, which is then to be gone into.
fn one(
    from: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    new: &[u8],
    like: &Stat,
    say: &mut Say,
) -> Result<Option<Level>, Trouble> {
    match stat::kind(like) {
        FileKind::Directory => {
            rustix::fs::mkdirat(&to, new, Mode::from_raw_mode(0o700))?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let from = Dir::new(rustix::fs::openat(from, name, flags, Mode::empty())?)?;
            let to = rustix::fs::openat(to, new, flags, Mode::empty())?;
            return Ok(Some(Level { from, to, like: *like }));
        }
        FileKind::File => content(from, name, to, new, like, say)?,
        FileKind::Link => {
            let target = rustix::fs::readlinkat(from, name, Vec::new())?;
            rustix::fs::symlinkat(target.as_c_str(), &to, new)?;
        }
        FileKind::Other => {
            let kind = FileType::from_raw_mode(like.st_mode);
            if !matches!(kind, FileType::Fifo | FileType::Socket) {
                return Err(Trouble::Device);
            }
            rustix::fs::mknodat(
                &to,
                new,
                kind,
                Mode::from_raw_mode(like.st_mode & guest_proto::MODE_BITS),
                0,
            )?;
        }
    }
    Ok(None)
}

fn content(
    from: impl AsFd,
    name: &[u8],
    to: impl AsFd,
    new: &[u8],
    like: &Stat,
    say: &mut Say,
) -> Result<(), Trouble> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let source = rustix::fs::openat(from, name, flags, Mode::empty())?;
    if stat::kind(&rustix::fs::fstat(&source)?) != FileKind::File {
        return Err(Errno::NXIO.into());
    }
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(to, new, flags, Mode::from_raw_mode(0o600))?;
    let mut buffer = vec![0; PIECE];
    loop {
        say.step().map_err(Trouble::Gone)?;
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
    Ok(dress(&file, like)?)
}

fn dress(to: &OwnedFd, like: &Stat) -> Result<(), Errno> {
    rustix::fs::fchown(to, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid)))?;
    rustix::fs::fchmod(to, Mode::from_raw_mode(like.st_mode & guest_proto::MODE_BITS))?;
    rustix::fs::futimens(to, &times(like.st_mtime, like.st_mtime_nsec as i64))
}

/// A time of change; that of the last access is now.
pub fn times(seconds: i64, nanoseconds: i64) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
    Timestamps { last_access: now, last_modification: Timespec { tv_sec: seconds, tv_nsec: nanoseconds } }
}
