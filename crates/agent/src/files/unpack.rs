//! Unpacks a tar archive; nothing is written outside the target directory.
//!
//! The directories of an entry are opened one by one without following links, so that no link leads out: neither one
//! of the archive, nor one that exists or is created meanwhile. `..` is refused, a leading `/` is removed. Devices,
//! FIFOs and sockets are counted as skipped. Everything belongs to root, or to the user on whose behalf it is unpacked.
//!
//! Entries unpacked before a failure stay; the incomplete file is deleted.

use guest_proto::{FileErrorKind, Tally};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use super::archive::{Archive, parts};
use super::copy::times;
use super::dirs;
use super::failure::{FileFailure, shown};
use super::header::Header;
use super::in_place;
use super::upload::Upload;
use super::write::write_some;
use crate::users::User;

/// Limit of nested directories, all of which are open.
const MAX_DEPTH: usize = 512;

/// The target of an archive.
struct UnpackTarget {
    root: OwnedFd,
    /// The directory of the last entry and its parents. Archives are usually ordered as a tree, so the next entry
    /// needs most of them.
    open: Vec<(Vec<u8>, OwnedFd)>,
    owner: Owner,
}

/// The owner of new entries; `None` for root, whose are all that the agent makes.
#[derive(Clone, Copy)]
struct Owner(Option<(Uid, Gid)>);

impl Owner {
    fn own(self, dir: BorrowedFd<'_>, name: &[u8]) -> Result<(), Errno> {
        let Some((uid, gid)) = self.0 else { return Ok(()) };
        rustix::fs::chownat(dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }
}

/// Unpacks an upload. A user owns what is new, the directory itself and its parents included.
pub fn unpack(path: &[u8], user: Option<&User>, upload: &mut Upload) -> Result<Tally, FileFailure> {
    let owner = Owner(user.map(|user| (Uid::from_raw(user.uid), Gid::from_raw(user.gid))));
    let make = || match user {
        Some(user) => in_place::make_dirs(path, user),
        None => dirs::make(path, None, true),
    };
    make().or_else(|failure| {
        // A directory of the user's that exists, or `/`, which cannot be created.
        dirs::open(path).map(drop).map_err(|_| failure)
    })?;
    let root = dirs::open(path).map_err(FileFailure::with(path))?;
    let mut target = UnpackTarget { root, open: Vec::new(), owner };
    let mut archive = Archive::new(upload);
    let mut tally = Tally::default();
    // Modes are those of the archive.
    rustix::process::umask(Mode::empty());
    while let Some(header) = archive.next()? {
        target.put(&header, &mut archive, &mut tally)?;
    }
    Ok(tally)
}

impl UnpackTarget {
    fn put(
        &mut self,
        header: &Header,
        archive: &mut Archive<'_>,
        tally: &mut Tally,
    ) -> Result<(), FileFailure> {
        let parts = parts(&header.name)?;
        let Some((name, above)) = parts.split_last() else {
            // The target directory itself, which is not changed.
            return Ok(());
        };
        let is_file = matches!(header.kind, b'0' | 0 | b'7');
        let is_directory = header.kind == b'5' || is_file && header.name.ends_with(b"/");
        match header.kind {
            _ if is_directory => self.directory(&parts, header).map(|()| tally.directories += 1),
            _ if is_file => {
                let owner = self.owner;
                let dir = self.enter(above, header)?;
                file(dir, name, owner, header, archive)?;
                tally.files += 1;
                tally.bytes += header.size;
                Ok(())
            }
            b'2' => {
                let owner = self.owner;
                let dir = self.enter(above, header)?;
                let make = || rustix::fs::symlinkat(header.link.as_slice(), dir, *name);
                let made = replace(dir, name, make).and_then(|()| owner.own(dir, name));
                made.map_err(FileFailure::with(&header.name))?;
                tally.links += 1;
                Ok(())
            }
            b'1' => {
                self.hard_link(name, above, header)?;
                tally.links += 1;
                Ok(())
            }
            b'3' | b'4' | b'6' => {
                tally.skipped += 1;
                Ok(())
            }
            kind => {
                let kind = char::from(kind).escape_debug();
                Err(refused(header, &format!("has the type '{kind}', which is not supported")))
            }
        }
    }

    fn directory(&mut self, parts: &[&[u8]], header: &Header) -> Result<(), FileFailure> {
        let dir = self.enter(parts, header)?;
        // An `O_PATH` descriptor cannot be changed; `.` below it can.
        rustix::fs::chmodat(dir, c".", Mode::from_raw_mode(header.mode), AtFlags::empty())
            .map_err(FileFailure::with(&header.name))
    }

    fn hard_link(&mut self, name: &[u8], above: &[&[u8]], header: &Header) -> Result<(), FileFailure> {
        let target = parts(&header.link)?;
        let Some((target_name, target_above)) = target.split_last() else {
            return Err(refused(header, "is a hard link without a target"));
        };
        let from =
            rustix::io::dup(self.enter(target_above, header)?).map_err(FileFailure::with(&header.name))?;
        let dir = self.enter(above, header)?;
        let make = || rustix::fs::linkat(&from, *target_name, dir, name, AtFlags::empty());
        if target == parts(&header.name)? {
            // A link to itself: nothing to do if it exists.
            return match make() {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(errno) => Err(FileFailure::of(errno, &header.name)),
            };
        }
        replace(dir, name, make).map_err(FileFailure::with(&header.name))
    }

    /// Opens the directory with these names below the root, and creates missing ones.
    fn enter(&mut self, names: &[&[u8]], header: &Header) -> Result<BorrowedFd<'_>, FileFailure> {
        if names.len() > MAX_DEPTH {
            return Err(refused(header, "has too many nested directories"));
        }
        let known = self.open.iter().zip(names).take_while(|((open, _), name)| open == *name).count();
        self.open.truncate(known);
        for name in &names[known..] {
            let parent = self.open.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd());
            let fd = enter_one(parent, name, self.owner).map_err(|errno| failure_of(errno, header))?;
            self.open.push((name.to_vec(), fd));
        }
        Ok(self.open.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd()))
    }
}

fn enter_one(parent: BorrowedFd<'_>, name: &[u8], owner: Owner) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(parent, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            match rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(0o755)) {
                Ok(()) => owner.own(parent, name)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
            rustix::fs::openat(parent, name, flags, Mode::empty())
        }
        opened => opened,
    }
}

fn refused(header: &Header, why: &str) -> FileFailure {
    let message = format!("the archive's entry '{}' {why}", shown(&header.name));
    FileFailure::new(FileErrorKind::Invalid, message)
}

fn failure_of(errno: Errno, header: &Header) -> FileFailure {
    if matches!(errno, Errno::NOTDIR | Errno::LOOP) {
        return refused(header, "passes through a symbolic link or a file");
    }
    FileFailure::of(errno, &header.name)
}

/// Creates an entry. An existing one is deleted first, unless it is a directory that is not empty.
fn replace<T>(dir: BorrowedFd<'_>, name: &[u8], make: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    match make() {
        Err(Errno::EXIST) => {
            match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) => rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR)?,
                Err(errno) => return Err(errno),
            }
            make()
        }
        done => done,
    }
}

fn file(
    dir: BorrowedFd<'_>,
    name: &[u8],
    owner: Owner,
    header: &Header,
    archive: &mut Archive<'_>,
) -> Result<(), FileFailure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(header.mode);
    let failure = || FileFailure::with(&header.name);
    let file = replace(dir, name, || rustix::fs::openat(dir, name, flags, mode)).map_err(failure())?;
    owner.own(dir, name).map_err(failure())?;
    let filled = fill(&file, header, archive);
    // A change of the owner and a write remove the bits for other identities.
    if filled.is_ok() && (owner.0.is_some() || mode.intersects(Mode::SUID | Mode::SGID)) {
        rustix::fs::fchmod(&file, mode).map_err(failure())?;
    }
    if filled.is_err() {
        // Do not leave a partial file.
        let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
        return filled;
    }
    // Not every file system can store every time.
    let _ = rustix::fs::futimens(&file, &times(header.modified_s, header.modified_ns));
    Ok(())
}

fn fill(file: &OwnedFd, header: &Header, archive: &mut Archive<'_>) -> Result<(), FileFailure> {
    loop {
        let bytes = archive.content()?;
        if bytes.is_empty() {
            return Ok(());
        }
        let n = write_some(file, bytes).map_err(FileFailure::with(&header.name))?;
        archive.used(n);
    }
}
