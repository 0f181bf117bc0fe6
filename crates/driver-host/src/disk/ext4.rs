//! Mounts of the file system on a disk image.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use driver::{AtStep, DriverError, DriverStep};
use rustix::fs::{Mode, OFlags, openat, syncfs};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen,
};

use crate::loopdev::{self, DeviceNumber};

/// What a mount reads of a disk: its superblock, bitmaps and first inodes.
const READ_AHEAD: u64 = 128 << 10;
/// How long a device may be claimed by others.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
const BUSY_INTERVAL: Duration = Duration::from_millis(1);

/// Mounts a disk, detached; if that fails, checks it and tries once more.
pub fn mount_disk(image: &Path) -> Result<(OwnedFd, DeviceNumber), DriverError> {
    match try_mount_disk(image) {
        Ok(mount) => Ok(mount),
        Err(error)
            if error.raw_os_error() == Some(libc::ENOSPC) || error.raw_os_error() == Some(libc::ENODEV) =>
        {
            Err(DriverError::Exhausted { what: "loop devices", source: error })
        }
        // A check of a file system that is mounted would destroy it.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(DriverError::failed(DriverStep::AwaitLastUse, error))
        }
        Err(first) => {
            tracing::warn!(image = %image.display(), error = %first, "cannot mount a disk; checking it");
            // The exit code tells only what was repaired: the next mount shows whether the disk is usable.
            std::process::Command::new("e2fsck")
                .args(["-f", "-y"])
                .arg(image)
                .output()
                .at(DriverStep::RunE2fsck)?;
            try_mount_disk(image).at(DriverStep::MountDisk)
        }
    }
}

fn try_mount_disk(image: &Path) -> io::Result<(OwnedFd, DeviceNumber)> {
    let device = loopdev::attach(image)?;
    device.read_ahead(READ_AHEAD)?;
    let begin = Instant::now();
    loop {
        match mount_device(&device.path) {
            // Another thread that looks for a free device claims it for a moment.
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) && begin.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(BUSY_INTERVAL);
            }
            mounted => return Ok((mounted?, device.number)),
        }
    }
}

fn mount_device(device: &str) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device)?;
    // Blocks freed inside are freed on the host too.
    fsconfig_set_flag(&context, "discard")?;
    fsconfig_set_string(&context, "errors", "remount-ro")?;
    // The kernel would write zeroes over 1.6 % of the disk, which the sparse image has already.
    fsconfig_set_flag(&context, "noinit_itable")?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// A mount of the file system on a device that is mounted already.
pub fn mount_again(device: &str) -> io::Result<OwnedFd> {
    mount(device, None)
}

/// A read-only mount of a device that is read-only.
pub fn mount_read_only(device: &str) -> io::Result<OwnedFd> {
    mount(device, Some("ro"))
}

fn mount(device: &str, flag: Option<&str>) -> io::Result<OwnedFd> {
    let context = fsopen("ext4", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "source", device)?;
    if let Some(flag) = flag {
        fsconfig_set_flag(&context, flag)?;
    }
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOATIME;
    Ok(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

/// Writes everything that is cached of a file system to its device.
pub fn sync(mount: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(syncfs(openat(mount, ".", flags, Mode::empty())?)?)
}
