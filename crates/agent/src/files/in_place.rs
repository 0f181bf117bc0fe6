//! Operations on behalf of a user, who owns what they create: writing in place, making directories, renaming; and the extended
//! attributes of files.
//!
//! Writing in place keeps the inode, so that watches and open descriptors see the new content. A failed upload leaves the part
//! that was written.

use guest_proto::{Attributes, FileErrorKind, FileKind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;

use super::details;
use super::failure::{FileFailure, shown};
use super::read::expect_file;
use super::relocate::{self, Existing};
use super::reply::ReplyWriter;
use super::stat;
use super::upload::Upload;
use super::write::write_content;
use crate::users::User;

const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;
const UMASK: u32 = 0o022;

/// Writes a file. The order of the steps is that of the events of a watch: a new file is created, gets its owner and attributes,
/// and then its content.
pub fn write(
    path: &[u8],
    user: &User,
    attributes: Option<&Attributes<'_>>,
    upload: &mut Upload,
) -> Result<(), FileFailure> {
    if path.ends_with(b"/") {
        let message = format!("'{}' ends in a slash, which names a directory, not a file", shown(path));
        return Err(FileFailure::new(FileErrorKind::NotAFile, message));
    }
    make_parents(path, user)?;
    let failure = || FileFailure::with(path);
    // Opening anything else could block.
    if let Ok(found) = rustix::fs::statat(CWD, path, AtFlags::empty()) {
        expect_file(stat::kind(&found), path)?;
    }
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::from_raw_mode(FILE_MODE)).map_err(failure())?;
    let found = rustix::fs::fstat(&file).map_err(failure())?;
    expect_file(stat::kind(&found), path)?;
    let (uid, gid) = owner(user);
    rustix::fs::fchown(&file, uid, gid).map_err(failure())?;
    if let Some(attributes) = attributes {
        replace_attributes(&file, attributes, path)?;
    }
    if stat::size(&found) > 0 {
        rustix::fs::ftruncate(&file, 0).map_err(failure())?;
    }
    write_content(&file, upload, path)
}

/// Makes a directory and its parents.
pub fn make_dirs(path: &[u8], user: &User) -> Result<(), FileFailure> {
    make_parents(path, user)?;
    match make_dir(path, user) {
        Err(Errno::EXIST) => {
            let found = rustix::fs::statat(CWD, path, AtFlags::empty()).map_err(FileFailure::with(path))?;
            let is_directory = stat::kind(&found) == FileKind::Directory;
            Err(FileFailure::of(if is_directory { Errno::EXIST } else { Errno::NOTDIR }, path))
        }
        made => made.map_err(FileFailure::with(path)),
    }
}

/// Renames, and replaces what is at `to`.
pub fn rename(from: &[u8], to: &[u8], user: &User, reply: &mut ReplyWriter) -> Result<(), FileFailure> {
    rustix::fs::statat(CWD, from, AtFlags::SYMLINK_NOFOLLOW).map_err(FileFailure::with(from))?;
    make_parents(to, user)?;
    relocate::relocate(from, to, Existing::Replaced, reply)
}

/// Replaces the attributes of a prefix.
pub fn set_attributes(path: &[u8], attributes: &Attributes<'_>) -> Result<(), FileFailure> {
    let found = rustix::fs::statat(CWD, path, AtFlags::empty()).map_err(FileFailure::with(path))?;
    if stat::kind(&found) != FileKind::Directory {
        expect_file(stat::kind(&found), path)?;
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(FileFailure::with(path))?;
    replace_attributes(&file, attributes, path)
}

fn replace_attributes(file: &OwnedFd, attributes: &Attributes<'_>, path: &[u8]) -> Result<(), FileFailure> {
    let given: Vec<(String, &str)> = attributes
        .pairs
        .iter()
        .map(|(name, value)| (format!("user.{}{name}", attributes.prefix), *value))
        .collect();
    let existing = match details::full_names(file, attributes.prefix) {
        // A file system without attributes has none to remove.
        Err(Errno::NOTSUP) => Vec::new(),
        existing => existing.map_err(FileFailure::with(path))?,
    };
    for name in existing.iter().filter(|name| given.iter().all(|(kept, _)| kept != *name)) {
        rustix::fs::fremovexattr(file, name.as_str()).map_err(FileFailure::with(path))?;
    }
    for (name, value) in given {
        let set = rustix::fs::fsetxattr(file, name.as_str(), value.as_bytes(), XattrFlags::empty());
        set.map_err(|errno| match errno {
            // The attributes of a file share a block.
            Errno::NOSPC | Errno::RANGE | Errno::TOOBIG => FileFailure::new(
                FileErrorKind::Invalid,
                format!("the attributes of '{}' are larger than its file system allows", shown(path)),
            ),
            errno => FileFailure::of(errno, path),
        })?;
    }
    Ok(())
}

/// Makes the missing parents of a path.
fn make_parents(path: &[u8], user: &User) -> Result<(), FileFailure> {
    let end = path.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
    let slashes = path[..end].iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0);
    for (at, _) in slashes {
        match make_dir(&path[..at], user) {
            // If it is not a directory, the next component fails.
            Ok(()) | Err(Errno::EXIST) => {}
            // The directory may exist in a file system that refuses new ones.
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM)
                if rustix::fs::statat(CWD, &path[..at], AtFlags::empty()).is_ok() => {}
            Err(errno) => return Err(FileFailure::of(errno, &path[..at])),
        }
    }
    Ok(())
}

fn make_dir(path: &[u8], user: &User) -> Result<(), Errno> {
    rustix::process::umask(Mode::from_raw_mode(UMASK));
    rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(DIRECTORY_MODE))?;
    let (uid, gid) = owner(user);
    rustix::fs::chownat(CWD, path, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

pub fn owner(user: &User) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))
}
