//! Creates file systems and attaches mounts.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use launcher::{FileSystem, MountFlags};
use rootfs::Attributes;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

/// The flags of cgroups and of parts of a sysfs.
pub const KERNEL_VIEW: MountFlags =
    MountFlags { read_only: true, no_suid: true, no_dev: true, no_exec: true, strict_atime: false };

/// The kernel's name of a file system.
pub fn name_of(kind: FileSystem) -> &'static str {
    match kind {
        FileSystem::Proc => "proc",
        FileSystem::Tmpfs => "tmpfs",
        FileSystem::Devpts => "devpts",
        FileSystem::Mqueue => "mqueue",
    }
}

/// A new file system, detached.
pub fn create(
    kind: &str,
    source: &str,
    parameters: &[(String, Option<String>)],
    flags: MountFlags,
    mount_flags: FsMountFlags,
) -> io::Result<OwnedFd> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", source)?;
    for (name, value) in parameters {
        match value {
            Some(value) => fsconfig_set_string(&context, name.as_str(), value.as_str())?,
            None => fsconfig_set_flag(&context, name.as_str())?,
        }
    }
    if flags.read_only {
        fsconfig_set_flag(&context, "ro")?;
    }
    fsconfig_create(&context)?;
    Ok(fsmount(&context, mount_flags, mount_attributes(flags))?)
}

fn mount_attributes(flags: MountFlags) -> MountAttrFlags {
    let mut attributes = MountAttrFlags::empty();
    attributes.set(MountAttrFlags::MOUNT_ATTR_RDONLY, flags.read_only);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOSUID, flags.no_suid);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NODEV, flags.no_dev);
    attributes.set(MountAttrFlags::MOUNT_ATTR_NOEXEC, flags.no_exec);
    attributes.set(MountAttrFlags::MOUNT_ATTR_STRICTATIME, flags.strict_atime);
    attributes
}

/// The attributes of a copy of a mount.
pub fn attributes(flags: MountFlags) -> Attributes {
    [
        (flags.read_only, Attributes::READ_ONLY),
        (flags.no_suid, Attributes::NO_SET_USER_ID),
        (flags.no_dev, Attributes::NO_DEVICES),
        (flags.no_exec, Attributes::NO_EXECUTION),
    ]
    .into_iter()
    .filter(|(wanted, _)| *wanted)
    .fold(Attributes::NONE, |all, (_, one)| all | one)
}

/// Attaches a detached mount over an open file.
pub fn attach_over(mount: &OwnedFd, place: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(move_mount(mount.as_fd(), "", place.as_fd(), "", flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flag_is_one_attribute_of_a_new_mount() {
        let none = MountFlags::default();
        assert_eq!(mount_attributes(none), MountAttrFlags::empty());
        let single = [
            (MountFlags { read_only: true, ..none }, MountAttrFlags::MOUNT_ATTR_RDONLY),
            (MountFlags { no_suid: true, ..none }, MountAttrFlags::MOUNT_ATTR_NOSUID),
            (MountFlags { no_dev: true, ..none }, MountAttrFlags::MOUNT_ATTR_NODEV),
            (MountFlags { no_exec: true, ..none }, MountAttrFlags::MOUNT_ATTR_NOEXEC),
            (MountFlags { strict_atime: true, ..none }, MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        ];
        for (flags, expected) in single {
            assert_eq!(mount_attributes(flags), expected, "{flags:?}");
        }
    }

    #[test]
    fn a_copy_of_a_mount_is_restricted_in_the_same_way() {
        assert_eq!(attributes(MountFlags::default()), Attributes::NONE);
        let read_only = MountFlags { read_only: true, ..MountFlags::default() };
        assert_eq!(attributes(read_only), Attributes::READ_ONLY);
        let all = Attributes::READ_ONLY
            | Attributes::NO_SET_USER_ID
            | Attributes::NO_DEVICES
            | Attributes::NO_EXECUTION;
        assert_eq!(attributes(KERNEL_VIEW), all);
        // The times of a copy are those of the file system.
        let times = MountFlags { strict_atime: true, ..MountFlags::default() };
        assert_eq!(attributes(times), Attributes::NONE);
    }
}
