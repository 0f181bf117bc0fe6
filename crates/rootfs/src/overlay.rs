//! Mounts a sandbox's root file system in a private mount namespace.
//!
//! The disk, the layers and the overlay over them are mounted in the namespace of the thread or process that starts the
//! container. The container's namespace is made from it; when both are gone the kernel unmounts everything and
//! detaches the loop device. The host's mount table does not change, so a crash leaves no mount behind.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::CWD;
use rustix::mount::{MountFlags, MountPropagationFlags, OpenTreeFlags, mount, mount_change, open_tree};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::idmap::{Access, UserNamespace, attach};
use crate::sysfs;

/// Gives the calling thread a mount namespace and a working directory of its own. The thread must not be used for
/// anything else afterwards.
pub fn leave_host_namespace() -> io::Result<()> {
    // SAFETY: no other thread shares this thread's file system attributes afterwards; file descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
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
/// mount; `users` maps the ids of files to `uid_base` and above. Returns the root as a detached mount of its own.
pub fn assemble(
    disk: &OwnedFd,
    layers: &[PathBuf],
    users: &UserNamespace,
    uid_base: u32,
) -> Result<OwnedFd, StepError> {
    let step = |step: &str| {
        let step = step.to_owned();
        move |source: io::Error| StepError { step, source }
    };
    users.apply(disk, Access::ReadWrite).map_err(step("map the disk's ids"))?;
    attach(disk, Path::new("disk")).map_err(step("attach the disk"))?;
    for (number, layer) in layers.iter().enumerate() {
        users
            .bind_read_only(layer, &PathBuf::from(layer_point(number)))
            .map_err(step(&format!("map the ids of layer {}", layer.display())))?;
    }
    as_owner(uid_base, || mount_overlay(layers.len()))
        .map_err(step("act as the sandbox's root"))?
        .map_err(step("mount the overlay"))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, "rootfs", flags).map_err(io::Error::from).map_err(step("copy the root"))
}

/// Mount point of a layer. Short and relative, because all layers together must fit into one page of mount options.
fn layer_point(number: usize) -> String {
    format!("l{number}")
}

fn make_mount_points(layers: usize) -> io::Result<()> {
    fs::create_dir("disk")?;
    fs::create_dir("rootfs")?;
    (0..layers).try_for_each(|number| fs::create_dir(layer_point(number)))
}

fn mount_overlay(layers: usize) -> io::Result<()> {
    let lower: Vec<String> = (0..layers).map(layer_point).collect();
    let options = format!("lowerdir={},upperdir=disk/upper,workdir=disk/work", lower.join(":"));
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
