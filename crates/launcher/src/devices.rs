//! Devices of the host. Before one is used it is examined: a file in its place would be handed to every sandbox.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, OFlags, makedev};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};

/// A detached mount of a device.
pub fn hold(path: &Path, major: u32, minor: u32) -> Result<OwnedFd, Errno> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
    examined(open_tree(CWD, path, flags)?, major, minor)
}

/// The null device, open.
pub fn open_null() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    examined(rustix::fs::open("/dev/null", flags, Mode::empty())?, 1, 3)
}

fn examined(file: OwnedFd, major: u32, minor: u32) -> Result<OwnedFd, Errno> {
    let stat = rustix::fs::fstat(&file)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if is_device && stat.st_rdev == makedev(major, minor) { Ok(file) } else { Err(Errno::NODEV) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_device_with_the_number_is_accepted() {
        assert!(open_null().is_ok());
        assert!(hold(Path::new("/dev/zero"), 1, 5).is_ok());
        assert_eq!(hold(Path::new("/dev/zero"), 1, 3).err(), Some(Errno::NODEV));
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("null");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        assert_eq!(hold(&link, 1, 3).err(), Some(Errno::NODEV));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(hold(&file, 1, 3).err(), Some(Errno::NODEV));
    }
}
