//! The devices of a container: nodes in a file system that the launcher creates, because the container's root may create none.

use std::io;
use std::os::fd::OwnedFd;

use launcher::{MountFlags, Node};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, chmodat, makedev, mknodat};
use rustix::io::Errno;
use rustix::mount::FsMountFlags;

use crate::mounts::create as create_file_system;

const DIRECTORY_MODE: &str = "1775";
/// Everyone can read and write the devices.
const MODE: Mode = Mode::from_raw_mode(0o666);

/// A file system in memory with device nodes, detached. Directory and nodes belong to the host's root. The container's root can
/// create other files, as a member of its group, but not remove the nodes, since the directory is sticky: `mv file /dev/null` as
/// root fails, and the sandbox stays usable.
pub fn create(
    gid_base: u32,
    parameters: &[(String, Option<String>)],
    nodes: &[Node],
    flags: MountFlags,
) -> io::Result<OwnedFd> {
    let owner = [("gid", gid_base.to_string()), ("mode", DIRECTORY_MODE.to_owned())];
    let owner = owner.map(|(name, value)| (name.to_owned(), Some(value)));
    let parameters = [parameters, &owner].concat();
    let tree = create_file_system("tmpfs", "tmpfs", &parameters, flags, FsMountFlags::FSMOUNT_CLOEXEC)?;
    for Node { name, major, minor } in nodes {
        mknodat(&tree, name, FileType::CharacterDevice, MODE, makedev(*major, *minor))?;
        // The umask does not count.
        chmodat(&tree, name, MODE, AtFlags::empty())?;
    }
    Ok(tree)
}

/// The host's null device, open. A file in its place would be handed to every sandbox.
pub fn open_null() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let null = rustix::fs::open("/dev/null", flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&null)?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice;
    if is_device && stat.st_rdev == makedev(1, 3) { Ok(null) } else { Err(Errno::NODEV) }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_node_is_the_device_of_its_number_whatever_the_host_has_in_its_place() {
        assert!(open_null().is_ok());
        let node = Node { name: "nothing".to_owned(), major: 1, minor: 5 };
        let tree = create(7, &[], &[node], MountFlags::default()).unwrap();
        let opened = rustix::fs::openat(&tree, "nothing", OFlags::RDWR, Mode::empty()).unwrap();
        let mut bytes = [1; 4];
        std::fs::File::from(opened).read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [0; 4]);
        let [root, node] =
            [".", "nothing"].map(|name| rustix::fs::statat(&tree, name, AtFlags::empty()).unwrap());
        assert_eq!((root.st_uid, root.st_gid, root.st_mode & 0o7777, node.st_uid), (0, 7, 0o1775, 0));
        assert_eq!(Mode::from_raw_mode(node.st_mode) & Mode::from_raw_mode(0o777), MODE);
    }
}
