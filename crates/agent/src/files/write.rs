//! Puts what is fed in the place of a file. Until the last byte is there the old file is, and nobody sees the new one.

use guest_proto::{FileErrorKind, FileKind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::dirs;
use super::fault::{Fault, shown};
use super::feed::Feed;
use super::read::expect_file;
use super::stat;
use super::temporary::Temporary;

const DEFAULT_MODE: u32 = 0o644;
/// Links that lead to links; the kernel follows as many.
const MOST_LINKS: usize = 40;

/// A file that is there keeps its mode and its owner, unless a mode is given. A link is followed, also one that leads to no
/// file yet.
pub fn write(path: &[u8], mode: Option<u32>, parents: bool, feed: &mut Feed) -> Result<(), Fault> {
    if path.ends_with(b"/") {
        let message =
            format!("'{}' names a directory, as it ends in a slash; a file is written", shown(path));
        return Err(Fault::new(FileErrorKind::NotAFile, message));
    }
    let path = follow(path)?;
    let (above, name) = dirs::split_or_fault(&path)?;
    if parents {
        dirs::make_parents(&path)?;
    }
    let dir = dirs::open(above).map_err(|errno| no_parent(errno, above, parents))?;
    let old = old_file(&dir, name, &path)?;
    let mut temporary = Temporary::new(&dir, name).map_err(Fault::with(&path))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(&dir, temporary.name.as_slice(), flags, Mode::from_raw_mode(0o600));
    // The directory is there: it is one that takes no files, such as those of `/proc`.
    let file = made.map_err(|errno| if errno == Errno::NOENT { Errno::PERM } else { errno });
    let file = file.map_err(Fault::with(&path))?;
    loop {
        let bytes = feed.next()?;
        if bytes.is_empty() {
            break;
        }
        let n = write_some(&file, bytes).map_err(Fault::with(&path))?;
        feed.used(n);
    }
    dress(&file, old.as_ref(), mode).map_err(Fault::with(&path))?;
    rustix::fs::renameat(&dir, temporary.name.as_slice(), &dir, name).map_err(Fault::with(&path))?;
    temporary.keep();
    Ok(())
}

/// Where the links at the end of a path lead.
fn follow(path: &[u8]) -> Result<Vec<u8>, Fault> {
    let mut at = path.to_vec();
    for _ in 0..MOST_LINKS {
        let Some((above, _)) = dirs::split(&at) else { return Ok(at) };
        match rustix::fs::readlinkat(CWD, at.as_slice(), Vec::new()) {
            Ok(target) => {
                let target = target.into_bytes();
                at = if target.starts_with(b"/") { target } else { [above, &target].concat() };
            }
            // No link, or nothing there: what is done next says what is wrong, if anything.
            Err(_) => return Ok(at),
        }
    }
    Err(Fault::of(Errno::LOOP, path))
}

fn no_parent(errno: Errno, above: &[u8], parents: bool) -> Fault {
    if errno == Errno::NOENT && !parents {
        let message = format!("there is no directory '{}'; parents=true makes it", shown(above));
        return Fault::new(FileErrorKind::NotFound, message);
    }
    Fault::of(errno, above)
}

fn old_file(dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Option<Stat>, Fault> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if stat::kind(&found) == FileKind::Link => Err(Fault::of(Errno::LOOP, path)),
        Ok(found) => expect_file(stat::kind(&found), path).map(|()| Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(Fault::of(errno, path)),
    }
}

pub fn write_some(file: &OwnedFd, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(Errno::NOSPC),
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

fn dress(file: &OwnedFd, old: Option<&Stat>, mode: Option<u32>) -> Result<(), Errno> {
    if let Some(old) = old.filter(|old| (old.st_uid, old.st_gid) != (0, 0)) {
        // First: a change of owner takes bits of the mode away.
        rustix::fs::fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    }
    let mode = mode.or(old.map(|old| old.st_mode & guest_proto::MODE_BITS)).unwrap_or(DEFAULT_MODE);
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}
