//! Replaces a file by an upload, atomically: the old file stays until the last byte has arrived.

use guest_proto::{FileErrorKind, FileKind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;

use super::dirs;
use super::failure::{FileFailure, shown};
use super::read::expect_file;
use super::stat;
use super::temporary::{TargetChange, Temporary};
use super::upload::Upload;

const DEFAULT_MODE: u32 = 0o644;
const BLOCK_BYTES: usize = 1024 * 1024;
/// Most links to follow, as in the kernel.
const MAX_LINKS: usize = 40;

/// An existing file keeps its mode and owner, unless a mode is given. Links are followed, also to files that do not
/// exist yet.
pub fn write(path: &[u8], mode: Option<u32>, parents: bool, upload: &mut Upload) -> Result<(), FileFailure> {
    if path.ends_with(b"/") {
        let message = format!("'{}' ends in a slash, which names a directory, not a file", shown(path));
        return Err(FileFailure::new(FileErrorKind::NotAFile, message));
    }
    let path = follow(path)?;
    let (dir_path, name) = dirs::split_or_fail(&path)?;
    if parents {
        dirs::make_parents(&path)?;
    }
    let dir = dirs::open(dir_path).map_err(|errno| no_parent(errno, dir_path, parents))?;
    let old = old_file(&dir, name, &path)?;
    let change = if old.is_some() { TargetChange::Replaced } else { TargetChange::Created };
    let mut temporary = Temporary::new(&dir, name, change).map_err(FileFailure::with(&path))?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(&dir, temporary.name.as_slice(), flags, Mode::from_raw_mode(0o600));
    // The directory exists but refuses new files, like those of `/proc`.
    let file = opened.map_err(|errno| if errno == Errno::NOENT { Errno::PERM } else { errno });
    let file = file.map_err(FileFailure::with(&path))?;
    write_content(&file, upload, &path)?;
    set_attributes(&file, old.as_ref(), mode).map_err(FileFailure::with(&path))?;
    rustix::fs::renameat(&dir, temporary.name.as_slice(), &dir, name).map_err(FileFailure::with(&path))?;
    temporary.mark_renamed();
    Ok(())
}

/// Resolves links in the last component of a path.
fn follow(path: &[u8]) -> Result<Vec<u8>, FileFailure> {
    let mut at = path.to_vec();
    for _ in 0..MAX_LINKS {
        let Some((dir_path, _)) = dirs::split(&at) else { return Ok(at) };
        match rustix::fs::readlinkat(CWD, at.as_slice(), Vec::new()) {
            Ok(target) => {
                let target = target.into_bytes();
                at = if target.starts_with(b"/") { target } else { [dir_path, &target].concat() };
            }
            // Not a link, or missing: the next step reports an error, if any.
            Err(_) => return Ok(at),
        }
    }
    Err(FileFailure::of(Errno::LOOP, path))
}

fn no_parent(errno: Errno, dir_path: &[u8], parents: bool) -> FileFailure {
    if errno == Errno::NOENT && !parents {
        let message = format!("the directory '{}' does not exist; parents=true creates it", shown(dir_path));
        return FileFailure::new(FileErrorKind::NotFound, message);
    }
    FileFailure::of(errno, dir_path)
}

fn old_file(dir: &OwnedFd, name: &[u8], path: &[u8]) -> Result<Option<Stat>, FileFailure> {
    match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if stat::kind(&found) == FileKind::Link => Err(FileFailure::of(Errno::LOOP, path)),
        Ok(found) => expect_file(stat::kind(&found), path).map(|()| Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(FileFailure::of(errno, path)),
    }
}

/// Writes the whole upload to a file, in blocks: the kernel then uses large pages for its cache, and 100 MB take a third of the time
/// that they take in pieces of 16 KiB.
pub fn write_content(file: &OwnedFd, upload: &mut Upload, path: &[u8]) -> Result<(), FileFailure> {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        let n = upload.fill(&mut block)?;
        let mut rest = &block[..n];
        while !rest.is_empty() {
            let written = write_some(file, rest).map_err(FileFailure::with(path))?;
            rest = &rest[written..];
        }
        if n < block.len() {
            return Ok(());
        }
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

fn set_attributes(file: &OwnedFd, old: Option<&Stat>, mode: Option<u32>) -> Result<(), Errno> {
    if let Some(old) = old.filter(|old| (old.st_uid, old.st_gid) != (0, 0)) {
        // Before the mode: a change of the owner clears setuid bits.
        rustix::fs::fchown(file, Some(Uid::from_raw(old.st_uid)), Some(Gid::from_raw(old.st_gid)))?;
    }
    let mode = mode.or(old.map(|old| old.st_mode & guest_proto::MODE_BITS)).unwrap_or(DEFAULT_MODE);
    rustix::fs::fchmod(file, Mode::from_raw_mode(mode))
}
