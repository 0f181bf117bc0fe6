//! What a sandbox sees of `/sys`.
//!
//! A sysfs shows the whole machine: the backing files of all loop devices, whose names contain sandbox ids, and the
//! statistics of all disks. So a sandbox gets a small file system in its place, in which parts of a sysfs are mounted:
//!
//! ```text
//! class/net, devices/virtual/net  the sandbox's network interfaces
//! devices/system                  processors, memory nodes
//! fs/cgroup                       the sandbox's cgroups
//! kernel/mm/transparent_hugepage
//! block, bus, dev, module, ...    empty, for programs that list them
//! ```
//!
//! An OCI runtime cannot mount parts of a file system that it creates. There the sysfs is mounted, and what programs do not need is
//! covered by directories of the small file system.
//!
//! It is not mounted elsewhere, so the sandbox's mount table shows no path of the host.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path, PathBuf};

use rustix::mount::{MountFlags, mount};

/// The directory of the ramfs that becomes the sandbox's `/sys`.
pub const DIRECTORY: &str = "sys";
/// The directory of the ramfs where a whole sysfs is mounted while parts of it are taken.
pub const WHOLE: &str = "whole-sys";
/// A directory of the ramfs that stays empty.
pub const EMPTY_DIR: &str = "empty";
/// A file of the ramfs that stays empty.
pub const EMPTY_FILE: &str = "none";
/// A file of the ramfs with a random id.
pub const BOOT_ID: &str = "boot-id";
/// The kernel makes a random id for each reader.
const RANDOM_ID: &str = "/proc/sys/kernel/random/uuid";
/// The parts of a sysfs that a sandbox sees. Kernels may lack the last one.
pub const PARTS: [&str; 3] = ["devices/system", "devices/virtual/net", HUGE_PAGES];
/// Directories of `/sys` that are replaced by the ones of the same name in the ramfs.
const REPLACED: [&str; 3] = ["class", "fs", "kernel"];
/// Empty directories in the sandbox's `/sys`, for programs that list them.
const EMPTY: [&str; 6] = ["block", "bus", "dev", "module", "power", "devices/virtual/block"];
/// The beginning of the paths of loop devices.
const LOOP_DEVICES: &[u8] = b"/sys/class/block/loop";
const HUGE_PAGES: &str = "kernel/mm/transparent_hugepage";
/// Directories of a sysfs that are covered by empty ones.
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

/// The name of a file of the ramfs that is seen in the place of one of the kernel.
pub fn replacement(number: usize) -> String {
    format!("replacement-{number}")
}

/// Mounts the ramfs.
pub fn mount_at(place: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("covers", place, "ramfs", flags, c"mode=755")?)
}

/// Fills the ramfs, which is the working directory.
pub fn fill() -> io::Result<()> {
    let root = Path::new(DIRECTORY);
    for dir in [EMPTY_DIR, WHOLE] {
        fs::create_dir(dir)?;
    }
    for dir in ["class", "fs/cgroup"].iter().chain(&PARTS).chain(&EMPTY) {
        fs::create_dir_all(root.join(dir))?;
    }
    fs::write(EMPTY_FILE, "")?;
    fs::write(BOOT_ID, fs::read(RANDOM_ID)?)?;
    // All interfaces of a sandbox are virtual devices.
    symlink("../devices/virtual/net", root.join("class/net"))
}

/// Makes a directory for a cgroup that is visible inside at `target`, below `/sys/fs/cgroup`.
pub fn prepare_cgroup(target: &Path) -> io::Result<()> {
    let inside = target.strip_prefix("/sys").map_err(io::Error::other)?;
    fs::create_dir_all(Path::new(DIRECTORY).join(inside))
}

/// The read-only bind mounts over a sysfs, as source and target, in the order in which they have to be made. `place` is where
/// the ramfs is mounted.
pub fn cover_mounts(place: &Path) -> Vec<(PathBuf, PathBuf)> {
    let root = place.join(DIRECTORY);
    let sys = Path::new("/sys");
    let mut cover_mounts: Vec<_> = REPLACED.iter().map(|dir| (root.join(dir), sys.join(dir))).collect();
    if sys.join(HUGE_PAGES).exists() {
        cover_mounts.push((sys.join(HUGE_PAGES), sys.join(HUGE_PAGES)));
    }
    let empty = COVERED.iter().map(|dir| sys.join(dir)).chain(roots_of_block_devices());
    cover_mounts.extend(empty.filter(|dir| dir.exists()).map(|dir| (place.join(EMPTY_DIR), dir)));
    cover_mounts
}

/// The directories directly below `/sys/devices` that hold the host's disks, such as `/sys/devices/pci0000:00`.
fn roots_of_block_devices() -> BTreeSet<PathBuf> {
    let Ok(devices) = fs::read_dir("/sys/class/block") else { return BTreeSet::new() };
    let names = devices.flatten().map(|device| device.path());
    // A host has hundreds of loop devices, which are virtual.
    let maybe_disks = names.filter(|path| !path.as_os_str().as_encoded_bytes().starts_with(LOOP_DEVICES));
    maybe_disks.filter_map(|path| fs::read_link(path).ok()).filter_map(|target| root_of(&target)).collect()
}

/// The directory of a device directly below `/sys/devices`, by the target of its link in `/sys/class/block`. `None` for virtual
/// devices, which include the sandbox's network interfaces and are covered by class.
fn root_of(target: &Path) -> Option<PathBuf> {
    match target.strip_prefix("../../devices").ok()?.components().next()? {
        Component::Normal(name) if name != "virtual" => Some(Path::new("/sys/devices").join(name)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_are_covered_by_bus_and_virtual_devices_by_class() {
        let disk = Path::new("../../devices/pci0000:00/0000:00:05.0/virtio2/block/vda");
        assert_eq!(root_of(disk), Some(PathBuf::from("/sys/devices/pci0000:00")));
        assert_eq!(root_of(Path::new("../../devices/virtual/block/loop0")), None);
        assert_eq!(root_of(Path::new("../../block")), None);
    }

    #[test]
    fn every_disk_of_this_host_has_a_root() {
        let disks = fs::read_dir("/sys/class/block").unwrap().flatten();
        let canonical = disks.filter_map(|disk| fs::canonicalize(disk.path()).ok());
        let expected = canonical.filter(|path| !path.starts_with("/sys/devices/virtual"));
        let expected = expected.map(|path| path.components().take(4).collect::<PathBuf>());
        assert_eq!(roots_of_block_devices(), expected.collect());
    }
}
