//! Deletes a path, with `recursive` including its content. Links are deleted, not followed.
//!
//! If a process keeps creating entries, the operation fails because the directory is not empty. Entries deleted
//! before a failure stay deleted.

use std::os::fd::AsFd;

use guest_proto::{FileErrorKind, FileKind, Tally};
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::dirs;
use super::failure::{FileFailure, shown};
use super::list::next_name;
use super::reply::ReplyWriter;
use super::stat;
use super::temporary::{self, TargetChange};

/// Limit of open directories. Deeper directories are first moved up.
const MAX_OPEN_DIRS: usize = 64;
/// How often a directory that gets new entries is emptied again.
const MAX_PASSES: u32 = 20;

/// A directory that is being emptied.
struct EmptiedDir {
    dir: Dir,
    name: Vec<u8>,
    passes: u32,
}

/// What is deleted of a directory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// Only an empty one.
    Empty,
    Tree,
}

/// Removes a file, or a directory as deep as allowed. A failure leaves the rest.
pub fn delete(path: &[u8], depth: Depth, reply: &mut ReplyWriter) -> Result<Tally, FileFailure> {
    let Some((above, name)) = dirs::split(path) else {
        let message = format!(
            "'{}' cannot be deleted: the path must end in the name of a file or directory",
            shown(path)
        );
        return Err(FileFailure::new(FileErrorKind::Denied, message));
    };
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(FileFailure::with(path))?;
    let parent = dirs::open(above).map_err(FileFailure::with(path))?;
    let mut tally = Tally::default();
    if stat::kind(&found) != FileKind::Directory {
        rustix::fs::unlinkat(&parent, name, AtFlags::empty()).map_err(FileFailure::with(path))?;
        count(&mut tally, stat::kind(&found));
        return Ok(tally);
    }
    if depth == Depth::Tree {
        return delete_tree(parent, name, path, reply);
    }
    rustix::fs::unlinkat(&parent, name, AtFlags::REMOVEDIR).map_err(|errno| match errno {
        Errno::NOTEMPTY | Errno::EXIST => {
            let message = format!(
                "the directory '{}' is not empty; recursive=true deletes it with its content",
                shown(path)
            );
            FileFailure::new(FileErrorKind::NotEmpty, message)
        }
        errno => FileFailure::of(errno, path),
    })?;
    tally.directories = 1;
    Ok(tally)
}

/// Deletes the directory `name` of `parent`. `path` is for messages.
pub fn delete_tree(
    parent: impl AsFd,
    name: &[u8],
    path: &[u8],
    reply: &mut ReplyWriter,
) -> Result<Tally, FileFailure> {
    let mut tally = Tally::default();
    let failure = || FileFailure::with(path);
    let mut levels = vec![open(&parent, name).map_err(failure())?];
    loop {
        let depth = levels.len();
        let Some(top) = levels.last_mut() else { return Ok(tally) };
        reply.step()?;
        let Some(entry) = next_name(&mut top.dir).map_err(failure())? else {
            let Some(emptied) = levels.pop() else { return Ok(tally) };
            remove_emptied(&parent, &mut levels, emptied, &mut tally).map_err(failure())?;
            continue;
        };
        let fd = top.dir.fd().map_err(failure())?;
        let kind = match rustix::fs::statat(fd, entry.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => stat::kind(&found),
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(FileFailure::of(errno, path)),
        };
        if kind != FileKind::Directory {
            match rustix::fs::unlinkat(fd, entry.as_slice(), AtFlags::empty()) {
                Ok(()) => count(&mut tally, kind),
                Err(Errno::NOENT | Errno::ISDIR) => {}
                Err(errno) => return Err(FileFailure::of(errno, path)),
            }
        } else if depth < MAX_OPEN_DIRS {
            match open(fd, &entry) {
                Ok(level) => levels.push(level),
                // It was replaced; the next pass over its directory handles it.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(errno) => return Err(FileFailure::of(errno, path)),
            }
        } else {
            let moved_name = temporary::name_for(&entry, TargetChange::Created).map_err(failure())?;
            let first = levels[0].dir.fd().map_err(failure())?;
            let fd = levels[MAX_OPEN_DIRS - 1].dir.fd().map_err(failure())?;
            rustix::fs::renameat(fd, entry.as_slice(), first, moved_name.as_slice()).map_err(failure())?;
            // The first directory got an entry, so it needs another pass.
            levels[0].passes = 0;
        }
    }
}

/// Removes a directory without entries; if it got new ones, starts another pass over it.
fn remove_emptied(
    parent: &impl AsFd,
    levels: &mut Vec<EmptiedDir>,
    mut emptied: EmptiedDir,
    tally: &mut Tally,
) -> Result<(), Errno> {
    let removed = match levels.last() {
        Some(above) => rustix::fs::unlinkat(above.dir.fd()?, emptied.name.as_slice(), AtFlags::REMOVEDIR),
        None => rustix::fs::unlinkat(parent, emptied.name.as_slice(), AtFlags::REMOVEDIR),
    };
    match removed {
        Ok(()) => tally.directories += 1,
        Err(Errno::NOENT) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST) if emptied.passes < MAX_PASSES => {
            emptied.passes += 1;
            emptied.dir.rewind();
            levels.push(emptied);
        }
        Err(errno) => return Err(errno),
    }
    Ok(())
}

fn open(dir: impl AsFd, name: &[u8]) -> Result<EmptiedDir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    Ok(EmptiedDir { dir: Dir::new(fd)?, name: name.to_vec(), passes: 0 })
}

fn count(tally: &mut Tally, kind: FileKind) {
    match kind {
        FileKind::Link => tally.links += 1,
        _ => tally.files += 1,
    }
}
