//! Mounts a sandbox's root file system in a private mount namespace.
//!
//! The disk, the layers and the overlay over them are mounted in the namespace of the thread or process that starts the
//! container. The container's namespace is made from it; when both are gone the kernel unmounts everything and
//! detaches the loop device. The host's mount table does not change, so a crash leaves no mount behind.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, OpenTreeFlags, mount, mount_change, open_tree};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::idmap::{MountAccess, UserNamespace, attach};
use crate::sysfs;

/// Mount point of the sandbox's disk.
const DISK: &str = "disk";
/// The directory of a disk with what the sandbox has written.
const UPPER: &str = "upper";

/// Gives the calling thread a mount namespace and a working directory of its own. The thread must not be used for
/// anything else afterwards.
pub fn leave_host_namespace() -> io::Result<()> {
    // SAFETY: no other thread shares this thread's file system attributes afterwards; file descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// A layer below the sandbox's disk. Read-only.
#[derive(Debug, Clone, Copy)]
pub enum Layer<'a> {
    /// A directory of the host: a layer of an image.
    Directory(&'a Path),
    /// The disk of a snapshot, as a detached mount that was not used before. Its directory `upper` is the layer.
    Snapshot(&'a OwnedFd),
}

/// A step that failed, and why.
#[derive(Debug)]
pub struct StepError {
    pub step: String,
    pub source: io::Error,
}

/// Mounts a file system in memory at `place` and makes it the working directory. It has the mount points of [`assemble`] and the
/// directory that becomes the sandbox's `/sys`. The first step of [`assemble`].
pub fn prepare(place: &Path, layers: usize) -> Result<(), StepError> {
    let step = |step: &str| {
        let step = step.to_owned();
        move |source: io::Error| StepError { step, source }
    };
    sysfs::mount_at(place).map_err(step("mount a file system in memory"))?;
    rustix::process::chdir(place)
        .map_err(io::Error::from)
        .map_err(step("enter the file system in memory"))?;
    make_mount_points(layers).map_err(step("make mount points"))?;
    sysfs::fill().map_err(step("prepare the sandbox's /sys"))
}

/// Mounts a sandbox's root at `rootfs` below the working directory, as the calling thread sees it. `disk` is a detached
/// mount; `layers` are topmost first; `users` maps the ids of files to `uid_base` and above. Returns the root as a detached mount of
/// its own.
pub fn assemble(
    disk: &OwnedFd,
    layers: &[Layer<'_>],
    users: &UserNamespace,
    uid_base: u32,
) -> Result<OwnedFd, StepError> {
    let step = |step: &str| {
        let step = step.to_owned();
        move |source: io::Error| StepError { step, source }
    };
    users.apply(disk, MountAccess::ReadWrite).map_err(step("map the disk's ids"))?;
    attach(disk, Path::new(DISK)).map_err(step("attach the disk"))?;
    let mut lower = Vec::with_capacity(layers.len());
    for (number, layer) in layers.iter().enumerate() {
        lower.push(attach_layer(*layer, number, users)?);
    }
    if let Some(Layer::Snapshot(_)) = layers.first() {
        inherit_root(Path::new(&lower[0]), &Path::new(DISK).join(UPPER))
            .map_err(step("copy the attributes of the root"))?;
    }
    as_owner(uid_base, || mount_overlay(&lower))
        .map_err(step("act as the sandbox's root"))?
        .map_err(step("mount the overlay"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, "rootfs", flags).map_err(io::Error::from).map_err(step("copy the root"))
}

/// Mounts a layer, and returns the path of its files.
fn attach_layer(layer: Layer<'_>, number: usize, users: &UserNamespace) -> Result<String, StepError> {
    let point = layer_point(number);
    match layer {
        Layer::Directory(path) => {
            let failed =
                |source| StepError { step: format!("map the ids of layer {}", path.display()), source };
            users.bind_read_only(path, Path::new(&point)).map_err(failed)?;
            Ok(point)
        }
        Layer::Snapshot(mount) => {
            let mapped =
                users.apply(mount, MountAccess::ReadOnly).and_then(|()| attach(mount, Path::new(&point)));
            mapped.map_err(|source| StepError { step: format!("attach the snapshot {number}"), source })?;
            Ok(format!("{point}/{UPPER}"))
        }
    }
}

/// Gives an unused upper directory the owner and the mode that `/` has in the snapshot below: those of the upper directory count.
fn inherit_root(lower: &Path, upper: &Path) -> io::Result<()> {
    if fs::read_dir(upper)?.next().is_some() {
        return Ok(());
    }
    let root = fs::metadata(lower)?;
    chown(upper, Some(root.uid()), Some(root.gid()))?;
    fs::set_permissions(upper, fs::Permissions::from_mode(root.mode() & 0o7777))
}

/// Mount point of a layer. Short and relative, because all layers together must fit into one page of mount options.
fn layer_point(number: usize) -> String {
    format!("l{number}")
}

fn make_mount_points(layers: usize) -> io::Result<()> {
    fs::create_dir(DISK)?;
    fs::create_dir("rootfs")?;
    (0..layers).try_for_each(|number| fs::create_dir(layer_point(number)))
}

fn mount_overlay(lower: &[String]) -> io::Result<()> {
    let options = format!("lowerdir={},upperdir={DISK}/{UPPER},workdir={DISK}/work", lower.join(":"));
    let options = std::ffi::CString::new(options)?;
    mount("overlay", "rootfs", "overlay", MountFlags::NODEV | MountFlags::NOATIME, options.as_c_str())?;
    Ok(())
}

/// Runs `work` with the file system ids of the sandbox's root, without losing capabilities.
///
/// The overlay creates files on the disk (in its work directory, copies of lower files) as the user who mounted it. Host root is not
/// in the disk's id map, so it could not create files there.
pub fn as_owner<T>(uid_base: u32, work: impl FnOnce() -> T) -> io::Result<T> {
    use rustix::thread::{CapabilitiesSecureBits, capabilities_secure_bits, set_capabilities_secure_bits};
    let before = capabilities_secure_bits()?;
    // Otherwise the change of ids would drop capabilities. Credentials are per thread.
    set_capabilities_secure_bits(before | CapabilitiesSecureBits::NO_SETUID_FIXUP)?;
    set_fs_ids(uid_base);
    let result = work();
    set_fs_ids(0);
    set_capabilities_secure_bits(before)?;
    Ok(result)
}

fn set_fs_ids(id: u32) {
    // SAFETY: both change a number in this thread's credentials, touch no memory and cannot fail for root.
    unsafe {
        libc::setfsgid(id);
        libc::setfsuid(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner_and_mode(path: &Path) -> (u32, u32, u32) {
        let metadata = fs::metadata(path).unwrap();
        (metadata.uid(), metadata.gid(), metadata.mode() & 0o7777)
    }

    /// The directories of a snapshot and of the disk above it. The tests run as root.
    fn layers() -> (tempfile::TempDir, std::path::PathBuf, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let [lower, upper] = ["lower", "upper"].map(|name| dir.path().join(name));
        for path in [&lower, &upper] {
            fs::create_dir(path).unwrap();
        }
        chown(&lower, Some(5), Some(6)).unwrap();
        fs::set_permissions(&lower, fs::Permissions::from_mode(0o1750)).unwrap();
        fs::set_permissions(&upper, fs::Permissions::from_mode(0o755)).unwrap();
        (dir, lower, upper)
    }

    #[test]
    fn an_unused_disk_takes_the_root_of_the_snapshot_below() {
        let (_dir, lower, upper) = layers();
        inherit_root(&lower, &upper).unwrap();
        assert_eq!(owner_and_mode(&upper), (5, 6, 0o1750));
    }

    #[test]
    fn a_disk_in_use_keeps_what_its_sandbox_has_set() {
        let (_dir, lower, upper) = layers();
        fs::write(upper.join("file"), "written").unwrap();
        inherit_root(&lower, &upper).unwrap();
        assert_eq!(owner_and_mode(&upper), (0, 0, 0o755));
    }
}
