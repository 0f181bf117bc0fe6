//! Finds the places of mounts below the new root.
//!
//! The root's files come from an image and from the sandbox itself, so any name may be a symbolic link. No path is resolved
//! through one, and none leads out of the root.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat2, symlinkat, unlinkat};
use rustix::io::Errno;

/// What a mount covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MountPointKind {
    Directory,
    File,
}

/// What a mount of this file covers.
pub fn kind_of(file: &OwnedFd) -> Result<MountPointKind, Errno> {
    let mode = rustix::fs::fstat(file)?.st_mode;
    Ok(if FileType::from_raw_mode(mode) == FileType::Directory {
        MountPointKind::Directory
    } else {
        MountPointKind::File
    })
}

/// The file at an absolute path inside; `None` if there is none.
pub fn find(root: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, Errno> {
    match open(root, path, OFlags::PATH) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// As [`find`], but creates what is missing. A link or another file in the place of a wanted file is replaced.
pub fn ensure(root: &OwnedFd, path: &Path, kind: MountPointKind) -> Result<OwnedFd, Errno> {
    match open(root, path, OFlags::PATH) {
        Ok(found) if kind_of(&found)? == kind => return Ok(found),
        Ok(_) if kind == MountPointKind::Directory => return Err(Errno::NOTDIR),
        Ok(_) => return Err(Errno::ISDIR),
        Err(Errno::NOENT) => {}
        // The last part is a symbolic link, which is removed below, or another one is, which is not allowed.
        Err(Errno::LOOP) if kind == MountPointKind::File => {}
        Err(error) => return Err(error),
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    let parent = ensure(root, parent, MountPointKind::Directory)?;
    if kind == MountPointKind::Directory {
        mkdirat(parent.as_fd(), name, Mode::from_raw_mode(0o755))?;
    } else {
        match unlinkat(parent.as_fd(), name, AtFlags::empty()) {
            Err(Errno::NOENT) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(parent.as_fd(), name, flags, Mode::from_raw_mode(0o644))?;
    }
    open(root, path, OFlags::PATH)
}

/// Creates a symbolic link unless there is a file.
pub fn link(root: &OwnedFd, path: &Path, target: &Path) -> Result<(), Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(Errno::INVAL) };
    let parent = ensure(root, parent, MountPointKind::Directory)?;
    match symlinkat(target, parent.as_fd(), name) {
        Err(Errno::EXIST) => Ok(()),
        done => done,
    }
}

fn open(root: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let relative: PathBuf = path.strip_prefix("/").unwrap_or(path).into();
    let relative = if relative.as_os_str().is_empty() { Path::new(".") } else { &relative };
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    openat2(root, relative, flags | OFlags::CLOEXEC, Mode::empty(), resolve)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn root(dir: &Path) -> OwnedFd {
        std::fs::File::open(dir).unwrap().into()
    }

    #[test]
    fn places_are_created_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let root = root(dir.path());
        assert!(find(&root, Path::new("/a/b")).unwrap().is_none());
        let made = ensure(&root, Path::new("/a/b"), MountPointKind::Directory).unwrap();
        assert_eq!(kind_of(&made), Ok(MountPointKind::Directory));
        ensure(&root, Path::new("/a/file"), MountPointKind::File).unwrap();
        assert!(dir.path().join("a/file").is_file() && dir.path().join("a/b").is_dir());
        assert_eq!(ensure(&root, Path::new("/a/file"), MountPointKind::Directory).err(), Some(Errno::NOTDIR));
        assert_eq!(ensure(&root, Path::new("/a/b"), MountPointKind::File).err(), Some(Errno::ISDIR));
    }

    #[test]
    fn no_link_is_followed() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = root(dir.path());
        symlink(outside.path(), dir.path().join("proc")).unwrap();
        symlink("..", dir.path().join("up")).unwrap();
        for path in ["/proc", "/proc/sys", "/up", "/up/x"] {
            assert_eq!(
                ensure(&root, Path::new(path), MountPointKind::Directory).err(),
                Some(Errno::LOOP),
                "{path}"
            );
        }
        assert_eq!(find(&root, Path::new("/proc/sys")).err(), Some(Errno::LOOP));
        assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_replaced() {
        let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = root(dir.path());
        std::fs::create_dir(dir.path().join("etc")).unwrap();
        let target = outside.path().join("resolv.conf");
        symlink(&target, dir.path().join("etc/resolv.conf")).unwrap();
        let place = ensure(&root, Path::new("/etc/resolv.conf"), MountPointKind::File).unwrap();
        assert_eq!(kind_of(&place), Ok(MountPointKind::File));
        assert!(!target.exists() && !dir.path().join("etc/resolv.conf").is_symlink());
    }
}
