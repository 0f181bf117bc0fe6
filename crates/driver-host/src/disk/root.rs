//! Mounts a sandbox's whole root file system, for runtimes that expect it mounted.

use std::os::fd::OwnedFd;
use std::path::Path;

use driver::{AtStep, DriverError, DriverStep, SandboxSpec};
use rootfs::{StepError, UserNamespace};

use super::ext4::mount_disk;
use super::layers::{OpenLayer, SnapshotMounts};
use crate::loopdev::DeviceNumber;
use crate::paths::Paths;

/// Keeps the file systems of a sandbox mounted. Otherwise the last process that ends would have to write everything to the disk
/// first, even if it is about to be deleted.
#[derive(Debug)]
pub struct Mounts {
    /// Dropped first: its end writes to the disk.
    pub root: OwnedFd,
    pub disk: OwnedFd,
}

/// A mounted root file system.
#[derive(Debug)]
pub struct Assembled {
    pub mounts: Mounts,
    pub device: DeviceNumber,
}

/// Mounts a sandbox's root at `rootfs` below `place`, as the calling thread sees it, which has left the host's mount namespace.
pub fn assemble(
    spec: &SandboxSpec,
    paths: &Paths,
    snapshots: &SnapshotMounts,
    place: &Path,
    uid_base: u32,
) -> Result<Assembled, DriverError> {
    let users = UserNamespace::with_base(uid_base).at(DriverStep::MakeIdMap)?;
    let (disk, device) = mount_disk(&paths.disk())?;
    let open = snapshots.open(&spec.layers)?;
    let layers: Vec<_> = open.iter().map(OpenLayer::as_layer).collect();
    let root = rootfs::prepare(place, layers.len())
        .and_then(|()| rootfs::assemble(&disk, &layers, &users, uid_base))
        .map_err(|StepError { step, source }| DriverError::failed(DriverStep::Named(step), source))?;
    Ok(Assembled { mounts: Mounts { root, disk }, device })
}
