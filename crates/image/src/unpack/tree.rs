//! The directory that is being filled. The kernel resolves each path with this directory as its root, so no link of
//! an earlier entry leads outside; the last component is created, not followed.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::name::{Name, show};
use crate::fault::Fault;

/// Owner, permissions and time of an entry.
#[derive(Debug, Clone)]
pub(super) struct Meta {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
    pub(super) mtime: Timespec,
    pub(super) xattrs: Vec<(String, Vec<u8>)>,
}

pub(super) struct Tree {
    root: OwnedFd,
    /// The directory of the last entry, because consecutive entries are often in the same directory.
    recent: Option<(Vec<u8>, OwnedFd)>,
}

/// What exists at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Existing {
    Nothing,
    Directory,
    Whiteout,
    Other,
}

const RESOLVE: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);
const OPAQUE: &str = "trusted.overlay.opaque";
/// Attempts of `openat2`, which fails with EAGAIN if something on the host is renamed meanwhile.
const RETRIES: usize = 1_000;

impl Tree {
    pub(super) fn open(dir: &Path) -> Result<Self, Fault> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(Fault::io(format!("open {}", dir.display())))?;
        Ok(Self { root, recent: None })
    }

    fn resolve(&self, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
        let path = if path.is_empty() { &b"."[..] } else { path };
        let mut tries = 0;
        loop {
            let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
            match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), RESOLVE) {
                Err(Errno::AGAIN | Errno::INTR) if tries < RETRIES => tries += 1,
                other => return other,
            }
        }
    }

    /// The directory of an entry. Missing parents are created with owner root and mode 755.
    pub(super) fn parent(&mut self, path: &[u8]) -> Result<OwnedFd, Fault> {
        if let Some((have, fd)) = &self.recent
            && have == path
        {
            return fd.try_clone().map_err(Fault::io("duplicate a directory"));
        }
        let fd = match self.resolve(path, OFlags::PATH) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => self.make_parents(path)?,
            Err(e) => return Err(refused_path(path, e)),
        };
        let copy = fd.try_clone().map_err(Fault::io("duplicate a directory"))?;
        self.recent = Some((path.to_vec(), copy));
        Ok(fd)
    }

    fn make_parents(&mut self, path: &[u8]) -> Result<OwnedFd, Fault> {
        let mut at = self.resolve(b"", OFlags::PATH).map_err(|e| refused_path(path, e))?;
        let mut end = 0;
        for part in path.split(|b| *b == b'/') {
            end += part.len() + usize::from(end > 0);
            at = match self.resolve(&path[..end], OFlags::PATH) {
                Ok(next) => next,
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    let meta = Meta { uid: 0, gid: 0, mode: 0o755, mtime: EPOCH, xattrs: vec![] };
                    let name = Name { parent: path[..end].to_vec(), last: Some(part.to_vec()) };
                    match existing(&at, part)? {
                        Existing::Other => return Err(refused_path(path, Errno::NOTDIR)),
                        _ => drop(self.directory_in(&at, part, &name, &meta)?),
                    }
                    self.resolve(&path[..end], OFlags::PATH).map_err(|e| refused_path(path, e))?
                }
                Err(e) => return Err(refused_path(path, e)),
            };
        }
        Ok(at)
    }

    /// Removes an existing entry, to replace it by one that is not a directory.
    fn clear(&mut self, at: &OwnedFd, last: &[u8], name: &Name) -> Result<(), Fault> {
        let flags = match existing(at, last)? {
            Existing::Nothing => return Ok(()),
            Existing::Directory => AtFlags::REMOVEDIR,
            Existing::Whiteout | Existing::Other => AtFlags::empty(),
        };
        self.recent = None;
        rustix::fs::unlinkat(at, last, flags).map_err(failed("replace", name))
    }

    /// Creates a directory or updates an existing one. One that replaces a whiteout becomes opaque, because the lower
    /// directory was removed.
    pub(super) fn directory(&mut self, name: &Name, meta: &Meta) -> Result<(), Fault> {
        let dir = match &name.last {
            None => self.resolve(b"", OFlags::RDONLY).map_err(failed("open", name))?,
            Some(last) => {
                let at = self.parent(&name.parent)?;
                self.directory_in(&at, last, name, meta)?
            }
        };
        apply(&File::from(dir), name, meta)
    }

    fn directory_in(
        &mut self,
        at: &OwnedFd,
        last: &[u8],
        name: &Name,
        meta: &Meta,
    ) -> Result<OwnedFd, Fault> {
        let existing = existing(at, last)?;
        if existing != Existing::Directory {
            self.clear(at, last, name)?;
            rustix::fs::mkdirat(at, last, Mode::from_raw_mode(0o700)).map_err(failed("make", name))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(at, last, flags, Mode::empty()).map_err(failed("open", name))?;
        if existing != Existing::Directory {
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(meta.mode))
                .map_err(failed("set the mode of", name))?;
        }
        if existing == Existing::Whiteout {
            set_opaque(&dir, name)?;
        }
        Ok(dir)
    }

    /// Creates an empty file. The caller fills it and passes it to [`apply`].
    pub(super) fn file(&mut self, name: &Name, last: &[u8]) -> Result<File, Fault> {
        let at = self.parent(&name.parent)?;
        self.clear(&at, last, name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&at, last, flags, Mode::from_raw_mode(0o600)).map_err(failed("make", name))?;
        Ok(File::from(fd))
    }

    pub(super) fn symlink(
        &mut self,
        name: &Name,
        last: &[u8],
        target: &[u8],
        meta: &Meta,
    ) -> Result<(), Fault> {
        let at = self.parent(&name.parent)?;
        self.clear(&at, last, name)?;
        rustix::fs::symlinkat(target, &at, last).map_err(failed("make", name))?;
        set_owner_and_time(&at, last, name, meta)
    }

    pub(super) fn fifo(&mut self, name: &Name, last: &[u8], meta: &Meta) -> Result<(), Fault> {
        let at = self.parent(&name.parent)?;
        self.clear(&at, last, name)?;
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(&at, last, FileType::Fifo, mode, 0).map_err(failed("make", name))?;
        let flags = AtFlags::empty();
        set_owner_and_time(&at, last, name, meta)?;
        // The FIFO was just created in a directory that only this process writes to: it is not a link.
        rustix::fs::chmodat(&at, last, Mode::from_raw_mode(meta.mode), flags)
            .map_err(failed("set the mode of", name))
    }

    /// Creates another name for a file of this layer.
    pub(super) fn hard_link(&mut self, name: &Name, last: &[u8], target: &Name) -> Result<(), Fault> {
        let Some(target_last) = &target.last else {
            return Err(Fault::refused(format!("{} is a hard link to the root", show_name(name))));
        };
        let missing = || {
            Fault::refused(format!(
                "{} is a hard link to {}, which is not a file of the same layer",
                show_name(name),
                show_name(target)
            ))
        };
        let from = self.resolve(&target.parent, OFlags::PATH).map_err(|_| missing())?;
        match existing(&from, target_last)? {
            Existing::Other => {}
            _ => return Err(missing()),
        }
        let at = self.parent(&name.parent)?;
        if same_file(&from, target_last, &at, last) {
            return Ok(());
        }
        self.clear(&at, last, name)?;
        rustix::fs::linkat(&from, target_last, &at, last, AtFlags::empty()).map_err(failed("link", name))
    }

    /// Removes `removed` of the lower layers. An entry of this layer stays and hides them.
    pub(super) fn whiteout(&mut self, name: &Name, removed: &[u8]) -> Result<(), Fault> {
        let at = self.parent(&name.parent)?;
        match existing(&at, removed)? {
            Existing::Nothing => {
                rustix::fs::mknodat(&at, removed, FileType::CharacterDevice, Mode::empty(), 0)
                    .map_err(failed("make", name))
            }
            Existing::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let dir =
                    rustix::fs::openat(&at, removed, flags, Mode::empty()).map_err(failed("open", name))?;
                set_opaque(&dir, name)
            }
            Existing::Whiteout | Existing::Other => Ok(()),
        }
    }

    pub(super) fn opaque(&mut self, name: &Name) -> Result<(), Fault> {
        self.parent(&name.parent)?;
        let dir = self.resolve(&name.parent, OFlags::RDONLY).map_err(failed("open", name))?;
        set_opaque(&dir, name)
    }

    /// Sets a directory's time after it was filled, unless a later entry replaced the directory.
    pub(super) fn touch_directory(&self, path: &[u8], mtime: Timespec) -> Result<(), Fault> {
        match self.resolve(path, OFlags::RDONLY | OFlags::NOFOLLOW) {
            Ok(dir) => rustix::fs::futimens(&dir, &times(mtime)).map_err(Fault::io("set a directory's time")),
            Err(_) => Ok(()),
        }
    }
}

pub(super) const EPOCH: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Sets owner, mode, attributes and time of a file. The owner is first: its change drops setuid bits and
/// capabilities.
pub(super) fn apply(file: &File, name: &Name, meta: &Meta) -> Result<(), Fault> {
    rustix::fs::fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))
        .map_err(failed("set the owner of", name))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode)).map_err(failed("set the mode of", name))?;
    for (key, value) in &meta.xattrs {
        match rustix::fs::fsetxattr(file, key.as_str(), value, XattrFlags::empty()) {
            // Not all file systems support user attributes, and sandboxes do not need them.
            Err(Errno::NOTSUP) if key.starts_with("user.") => {}
            other => other.map_err(failed("set an attribute of", name))?,
        }
    }
    rustix::fs::futimens(file, &times(meta.mtime)).map_err(failed("set the time of", name))
}

fn set_owner_and_time(at: &OwnedFd, last: &[u8], name: &Name, meta: &Meta) -> Result<(), Fault> {
    let (uid, gid) = (Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)));
    rustix::fs::chownat(at, last, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed("set the owner of", name))?;
    rustix::fs::utimensat(at, last, &times(meta.mtime), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(failed("set the time of", name))
}

fn set_opaque(dir: &OwnedFd, name: &Name) -> Result<(), Fault> {
    rustix::fs::fsetxattr(dir, OPAQUE, b"y", XattrFlags::empty()).map_err(failed("mark opaque", name))
}

fn times(mtime: Timespec) -> Timestamps {
    Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: mtime }
}

fn existing(at: &OwnedFd, last: &[u8]) -> Result<Existing, Fault> {
    let stat = match rustix::fs::statat(at, last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Existing::Nothing),
        Err(e) => return Err(Fault::io(format!("look at {}", show(last)))(e)),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Existing::Directory,
        FileType::CharacterDevice => Existing::Whiteout,
        _ => Existing::Other,
    })
}

fn same_file(a: &OwnedFd, a_last: &[u8], b: &OwnedFd, b_last: &[u8]) -> bool {
    let stat = |at: &OwnedFd, last| rustix::fs::statat(at.as_fd(), last, AtFlags::SYMLINK_NOFOLLOW);
    matches!((stat(a, a_last), stat(b, b_last)), (Ok(a), Ok(b)) if a.st_ino == b.st_ino)
}

fn show_name(name: &Name) -> String {
    let mut path = name.parent.clone();
    if let Some(last) = &name.last {
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(last);
    }
    show(&path)
}

/// The error of a parent that is not a directory below the root, which the archive causes.
fn refused_path(path: &[u8], e: Errno) -> Fault {
    match e {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::EXIST => {
            Fault::refused(format!("path {} does not lead to a directory of the layer", show(path)))
                .caused_by(e)
        }
        e => Fault::io(format!("open {}", show(path)))(e),
    }
}

/// For `map_err`: errors that the archive causes are refusals, others are failures of the host.
fn failed(what: &'static str, name: &Name) -> impl FnOnce(Errno) -> Fault {
    let step = format!("{what} {}", show_name(name));
    move |e| match e {
        Errno::NOTEMPTY
        | Errno::EXIST
        | Errno::NOTDIR
        | Errno::ISDIR
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::INVAL
        | Errno::MLINK => Fault::refused(step).caused_by(e),
        e => Fault::io(step)(e),
    }
}
