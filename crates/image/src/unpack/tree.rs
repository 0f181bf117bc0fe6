//! The directory being filled. Every path is resolved by the kernel with this directory as its root, so no link planted
//! by an earlier entry leads anywhere else; the last component is made, never followed.

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
    /// The directory the last entry went to: most archives go through one directory after another.
    recent: Option<(Vec<u8>, OwnedFd)>,
}

/// What was at a name before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Before {
    Nothing,
    Directory,
    Whiteout,
    Other,
}

const RESOLVE: ResolveFlags =
    ResolveFlags::IN_ROOT.union(ResolveFlags::NO_MAGICLINKS).union(ResolveFlags::NO_XDEV);
const OPAQUE: &str = "trusted.overlay.opaque";
/// `openat2` may be told to try again when something on the host is renamed meanwhile.
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
        let kept = fd.try_clone().map_err(Fault::io("duplicate a directory"))?;
        self.recent = Some((path.to_vec(), kept));
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
                    match before(&at, part)? {
                        Before::Other => return Err(refused_path(path, Errno::NOTDIR)),
                        _ => drop(self.directory_in(&at, part, &name, &meta)?),
                    }
                    self.resolve(&path[..end], OFlags::PATH).map_err(|e| refused_path(path, e))?
                }
                Err(e) => return Err(refused_path(path, e)),
            };
        }
        Ok(at)
    }

    /// Removes what is in the way of an entry that is not a directory.
    fn clear(&mut self, at: &OwnedFd, last: &[u8], name: &Name) -> Result<(), Fault> {
        let flags = match before(at, last)? {
            Before::Nothing => return Ok(()),
            Before::Directory => AtFlags::REMOVEDIR,
            Before::Whiteout | Before::Other => AtFlags::empty(),
        };
        self.recent = None;
        rustix::fs::unlinkat(at, last, flags).map_err(failed("replace", name))
    }

    /// The directory itself, made if it is not there; over a whiteout it is made opaque, as the lower one is gone.
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
        let before = before(at, last)?;
        if before != Before::Directory {
            self.clear(at, last, name)?;
            rustix::fs::mkdirat(at, last, Mode::from_raw_mode(0o700)).map_err(failed("make", name))?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::openat(at, last, flags, Mode::empty()).map_err(failed("open", name))?;
        if before != Before::Directory {
            rustix::fs::fchmod(&dir, Mode::from_raw_mode(meta.mode))
                .map_err(failed("set the mode of", name))?;
        }
        if before == Before::Whiteout {
            set_opaque(&dir, name)?;
        }
        Ok(dir)
    }

    /// A new empty file, to be filled and given to [`finish_file`].
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
        // A fifo we just made in a directory only we write to: there is no link to follow.
        rustix::fs::chmodat(&at, last, Mode::from_raw_mode(meta.mode), flags)
            .map_err(failed("set the mode of", name))
    }

    /// Another name for a file of this layer.
    pub(super) fn hard_link(&mut self, name: &Name, last: &[u8], target: &Name) -> Result<(), Fault> {
        let Some(target_last) = &target.last else {
            return Err(Fault::refused(format!("{} is a hard link to the root", show_name(name))));
        };
        let missing = || {
            Fault::refused(format!(
                "{} is a hard link to {}, which is no file of the same layer",
                show_name(name),
                show_name(target)
            ))
        };
        let from = self.resolve(&target.parent, OFlags::PATH).map_err(|_| missing())?;
        match before(&from, target_last)? {
            Before::Other => {}
            _ => return Err(missing()),
        }
        let at = self.parent(&name.parent)?;
        if same_file(&from, target_last, &at, last) {
            return Ok(());
        }
        self.clear(&at, last, name)?;
        rustix::fs::linkat(&from, target_last, &at, last, AtFlags::empty()).map_err(failed("link", name))
    }

    /// Marks `gone` as removed from the layers below. What this layer itself has there stays, but hides them.
    pub(super) fn whiteout(&mut self, name: &Name, gone: &[u8]) -> Result<(), Fault> {
        let at = self.parent(&name.parent)?;
        match before(&at, gone)? {
            Before::Nothing => rustix::fs::mknodat(&at, gone, FileType::CharacterDevice, Mode::empty(), 0)
                .map_err(failed("make", name)),
            Before::Directory => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let dir =
                    rustix::fs::openat(&at, gone, flags, Mode::empty()).map_err(failed("open", name))?;
                set_opaque(&dir, name)
            }
            Before::Whiteout | Before::Other => Ok(()),
        }
    }

    pub(super) fn opaque(&mut self, name: &Name) -> Result<(), Fault> {
        self.parent(&name.parent)?;
        let dir = self.resolve(&name.parent, OFlags::RDONLY).map_err(failed("open", name))?;
        set_opaque(&dir, name)
    }

    /// Sets a directory's time again after it was filled. One that became something else meanwhile keeps what it has.
    pub(super) fn touch_directory(&self, path: &[u8], mtime: Timespec) -> Result<(), Fault> {
        match self.resolve(path, OFlags::RDONLY | OFlags::NOFOLLOW) {
            Ok(dir) => rustix::fs::futimens(&dir, &times(mtime)).map_err(Fault::io("set a directory's time")),
            Err(_) => Ok(()),
        }
    }
}

pub(super) const EPOCH: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Gives a written file its owner, mode, attributes and time. The order matters: a change of owner drops setuid bits and
/// capabilities.
pub(super) fn apply(file: &File, name: &Name, meta: &Meta) -> Result<(), Fault> {
    rustix::fs::fchown(file, Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)))
        .map_err(failed("set the owner of", name))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(meta.mode)).map_err(failed("set the mode of", name))?;
    for (key, value) in &meta.xattrs {
        match rustix::fs::fsetxattr(file, key.as_str(), value, XattrFlags::empty()) {
            // A file system without user attributes loses nothing a sandbox could not do without.
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

fn before(at: &OwnedFd, last: &[u8]) -> Result<Before, Fault> {
    let stat = match rustix::fs::statat(at, last, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Before::Nothing),
        Err(e) => return Err(Fault::io(format!("look at {}", show(last)))(e)),
    };
    Ok(match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Before::Directory,
        FileType::CharacterDevice => Before::Whiteout,
        _ => Before::Other,
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

/// The parent cannot be a directory beneath the root: the archive's doing.
fn refused_path(path: &[u8], e: Errno) -> Fault {
    match e {
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::NAMETOOLONG | Errno::EXIST => {
            Fault::refused(format!("path {} does not lead to a directory of the layer: {e}", show(path)))
        }
        e => Fault::io(format!("open {}", show(path)))(e),
    }
}

/// For `map_err`: what the archive brought about is refused, the rest is the host's failure.
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
        | Errno::MLINK => Fault::refused(format!("{step}: {e}")),
        e => Fault::io(step)(e),
    }
}
