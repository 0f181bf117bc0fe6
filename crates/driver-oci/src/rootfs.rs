//! Mounts a sandbox's root file system in a private mount namespace.
//!
//! The disk, the layers and the overlay over them are mounted in the namespace of the thread that starts the
//! runtime. The container's namespace is made from it; when both are gone the kernel unmounts everything and
//! detaches the loop device. The host's mount table does not change, so a crash leaves no mount behind.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use driver::{DriverError, SandboxSpec};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, fsconfig_create,
    fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_change,
};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use crate::idmap::{Access, UserNamespace, attach};
use crate::loopdev::{self, DeviceNumber};
use crate::paths::Paths;
use crate::sysfs;

/// Gives the calling thread a mount namespace and a working directory of its own. The thread must not be used for
/// anything else afterwards.
pub fn leave_host_namespace() -> io::Result<()> {
    // SAFETY: no other thread shares this thread's file system attributes afterwards; file descriptors stay shared.
    unsafe { unshare_unsafe(UnshareFlags::FS | UnshareFlags::NEWNS)? };
    mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    Ok(())
}

/// Mounts the sandbox's root at `paths.rootfs()`, as the calling thread sees it. Returns the device of its disk.
pub fn assemble(spec: &SandboxSpec, paths: &Paths, uid_base: u32) -> Result<DeviceNumber, DriverError> {
    let step = |step: &'static str| move |error: io::Error| DriverError::failed(step, error);
    rustix::process::chdir(&paths.run)
        .map_err(|error| DriverError::failed("enter the sandbox's directory", error))?;
    let users = UserNamespace::with_base(uid_base).map_err(step("make the id map"))?;
    make_mount_points(spec.layers.len()).map_err(step("make mount points"))?;
    sysfs::prepare().map_err(step("prepare the covers of /sys"))?;

    let (disk, device) = mount_disk(&paths.disk())?;
    users.apply(&disk, Access::ReadWrite).map_err(step("map the disk's ids"))?;
    attach(&disk, Path::new("disk")).map_err(step("attach the disk"))?;

    for (number, layer) in spec.layers.iter().enumerate() {
        users.bind_read_only(layer, &PathBuf::from(layer_point(number))).map_err(|error| {
            DriverError::failed(format!("map the ids of layer {}", layer.display()), error)
        })?;
    }
    as_owner(uid_base, || mount_overlay(spec.layers.len()))
        .map_err(step("act as the sandbox's root"))?
        .map_err(step("mount the overlay"))?;
    Ok(device)
}

/// Mount point of a layer. Short and relative, because all layers together must fit into one page of mount options.
fn layer_point(number: usize) -> String {
    format!("l{number}")
}

fn make_mount_points(layers: usize) -> io::Result<()> {
    fs::create_dir_all("disk")?;
    fs::create_dir_all("rootfs")?;
    for number in 0..layers {
        fs::create_dir_all(layer_point(number))?;
    }
    Ok(())
}

/// Mounts the disk; if that fails, checks it and tries once more.
fn mount_disk(image: &Path) -> Result<(OwnedFd, DeviceNumber), DriverError> {
    match try_mount_disk(image) {
        Ok(mount) => Ok(mount),
        Err(error)
            if error.raw_os_error() == Some(libc::ENOSPC) || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Err(DriverError::Exhausted { what: "loop devices", source: error })
        }
        Err(first) => {
            tracing::warn!(image = %image.display(), error = %first, "cannot mount a disk; checking it");
            // The exit code tells only what was repaired: the next mount shows whether the disk is usable.
            std::process::Command::new("e2fsck")
                .args(["-f", "-y"])
                .arg(image)
                .output()
                .map_err(|error| DriverError::failed("run e2fsck (package e2fsprogs)", error))?;
            try_mount_disk(image).map_err(|error| DriverError::failed("mount the disk", error))
        }
    }
}

fn try_mount_disk(image: &Path) -> io::Result<(OwnedFd, DeviceNumber)> {
    let device = loopdev::attach(image)?;
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device.path.as_str())?;
    // Blocks freed inside are freed on the host too.
    fsconfig_set_flag(&context, "discard")?;
    fsconfig_set_string(&context, "errors", "remount-ro")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok((fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?, device.number))
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
fn as_owner<T>(uid_base: u32, work: impl FnOnce() -> T) -> io::Result<T> {
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
