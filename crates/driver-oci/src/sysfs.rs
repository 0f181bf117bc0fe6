//! Covers parts of `/sys` in a sandbox. Called by `rootfs`, which mounts a small file system, and by
//! `bundle::mounts`, which bind-mounts its parts.
//!
//! A sysfs shows the whole machine: the backing files of all loop devices, whose names contain sandbox ids, and the
//! statistics of all disks. So directories that programs do not need are covered:
//!
//! ```text
//! visible  class/net, devices/virtual/net (those of the sandbox), devices/system (processors, memory nodes), fs/cgroup,
//!          kernel/mm/transparent_hugepage
//! covered  all else of class, fs and kernel; block, bus, dev, module, ...; in devices every part that holds a block device
//! ```
//!
//! The covers are parts of one ramfs. It is not mounted elsewhere, so the sandbox's mount table shows no path of the
//! host.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use crate::paths::Paths;

/// Mount point of the ramfs, in the sandbox's run directory.
pub const MOUNT_POINT: &str = "sys";
/// Subdirectory of the ramfs that stays empty.
const EMPTY: &str = "empty";
/// Directories of `/sys` that are replaced by the ones of the same name in the ramfs.
const REPLACED: [&str; 3] = ["class", "fs", "kernel"];
const HUGE_PAGES: &str = "kernel/mm/transparent_hugepage";
/// Directories of `/sys` that are empty inside.
const COVERED: [&str; 11] = [
    "block",
    "bus",
    "dev",
    "hypervisor",
    "module",
    "power",
    "devices/virtual/bdi",
    "devices/virtual/block",
    "devices/virtual/dmi",
    "devices/virtual/workqueue",
    "devices/virtual/thermal",
];

/// Mounts the ramfs at [`MOUNT_POINT`] below the working directory and fills it.
pub fn prepare() -> io::Result<()> {
    let root = Path::new(MOUNT_POINT);
    fs::create_dir_all(root)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs-cover", root, "ramfs", flags, c"mode=755")?;
    for dir in ["class", "fs/cgroup", HUGE_PAGES, EMPTY] {
        fs::create_dir_all(root.join(dir))?;
    }
    // All interfaces of a sandbox are virtual devices.
    symlink("../devices/virtual/net", root.join("class/net"))
}

/// The read-only bind mounts over `/sys`, as source and target, in the order in which they have to be made.
pub fn cover_mounts(paths: &Paths) -> Vec<(PathBuf, PathBuf)> {
    let root = paths.run.join(MOUNT_POINT);
    let sys = Path::new("/sys");
    let mut cover_mounts: Vec<_> = REPLACED.iter().map(|dir| (root.join(dir), sys.join(dir))).collect();
    if sys.join(HUGE_PAGES).exists() {
        cover_mounts.push((sys.join(HUGE_PAGES), sys.join(HUGE_PAGES)));
    }
    let empty = COVERED.iter().map(|dir| sys.join(dir)).chain(roots_of_block_devices());
    cover_mounts.extend(empty.filter(|dir| dir.exists()).map(|dir| (root.join(EMPTY), dir)));
    cover_mounts
}

/// The directories directly below `/sys/devices` that hold the host's disks, such as `/sys/devices/pci0000:00`.
fn roots_of_block_devices() -> BTreeSet<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/class/block") else { return BTreeSet::new() };
    devices
        .flatten()
        .filter_map(|device| fs::canonicalize(device.path()).ok())
        .filter_map(|path| root_of(&path))
        .collect()
}

/// The directory of a device directly below `/sys/devices`. `None` for virtual devices, which include the sandbox's
/// network interfaces and are covered by class.
fn root_of(device: &Path) -> Option<PathBuf> {
    let devices = Path::new("/sys/devices");
    match device.strip_prefix(devices).ok()?.components().next()? {
        Component::Normal(name) if name != "virtual" => Some(devices.join(name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_covered_by_bus_and_virtual_devices_by_class() {
        let disk = Path::new("/sys/devices/pci0000:00/0000:00:05.0/virtio2/block/vda");
        assert_eq!(root_of(disk), Some(PathBuf::from("/sys/devices/pci0000:00")));
        assert_eq!(root_of(Path::new("/sys/devices/virtual/block/loop0")), None);
        assert_eq!(root_of(Path::new("/sys/block")), None);
    }
}
