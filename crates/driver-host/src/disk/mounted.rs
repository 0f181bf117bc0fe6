//! The mounted disks of sandboxes with processes.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use api::SandboxId;
use base::IgnorePoison;

use super::ext4::mount_again;
use super::root::Mounts;
use crate::cgroup::{Cgroups, Population};
use crate::loopdev::{self, DeviceNumber};
use crate::paths::Paths;
use crate::settings::Settings;

/// The mounts of sandboxes that this process has started. Without an entry a disk is unmounted when the last process ends.
#[derive(Debug)]
pub struct MountedDisks {
    settings: Settings,
    cgroups: Cgroups,
    mounts: Mutex<HashMap<SandboxId, StartedMounts>>,
    starts: AtomicU64,
}

#[derive(Debug)]
struct StartedMounts {
    /// Differs for each start.
    start: u64,
    mounts: Mounts,
}

/// Tells a mounted disk from those of other starts of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId {
    pub device: DeviceNumber,
    /// The start that mounted it; 0 if an earlier daemon did.
    pub start: u64,
}

/// The disk of a sandbox that is mounted.
#[derive(Debug)]
pub struct MountedDisk {
    pub id: MountId,
    pub mount: OwnedFd,
}

impl MountedDisks {
    pub fn new(settings: &Settings, cgroups: &Cgroups) -> Self {
        let (settings, cgroups) = (settings.clone(), cgroups.clone());
        Self { settings, cgroups, mounts: Mutex::default(), starts: AtomicU64::new(1) }
    }

    fn mounts(&self) -> MutexGuard<'_, HashMap<SandboxId, StartedMounts>> {
        self.mounts.lock().ignore_poison()
    }

    /// Keeps what was mounted for a sandbox that has started.
    pub fn keep(&self, id: SandboxId, mounts: Mounts) {
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        self.mounts().insert(id, StartedMounts { start, mounts });
    }

    /// The disk of a sandbox, if it is mounted.
    pub fn find(&self, id: &SandboxId) -> io::Result<Option<MountedDisk>> {
        let own = match self.mounts().get(id) {
            Some(StartedMounts { start, mounts }) => Some((*start, mounts.disk.try_clone()?)),
            None => None,
        };
        if let Some((start, mount)) = own {
            let device = DeviceNumber::of(rustix::fs::fstat(&mount)?.st_dev);
            return Ok(Some(MountedDisk { id: MountId { device, start }, mount }));
        }
        // An earlier daemon started the sandbox, if it runs.
        if self.cgroups.population(id.as_str())? == Population::Empty {
            return Ok(None);
        }
        let disk = Paths::of(&self.settings, id).disk();
        let found = loopdev::find(&disk)?;
        // Its processes use the disk, so it is mounted.
        let device =
            found.ok_or_else(|| io::Error::other("no loop device has the disk of a running sandbox"))?;
        let mount = mount_again(&device.loop_path())?;
        // The device may have got another file before it was mounted.
        if loopdev::find(&disk)? != Some(device) {
            return Err(io::Error::other("the disk of a running sandbox was detached"));
        }
        Ok(Some(MountedDisk { id: MountId { device, start: 0 }, mount }))
    }

    /// The loop device of the disk of a sandbox, if it is mounted. Unlike [`Self::find`], this mounts nothing: the kernel refuses
    /// another mount of a file system that has become read-only.
    pub fn device(&self, id: &SandboxId) -> io::Result<Option<DeviceNumber>> {
        if let Some(StartedMounts { mounts, .. }) = self.mounts().get(id) {
            return Ok(Some(DeviceNumber::of(rustix::fs::fstat(&mounts.disk)?.st_dev)));
        }
        // An earlier daemon started the sandbox, if it runs.
        if self.cgroups.population(id.as_str())? == Population::Empty {
            return Ok(None);
        }
        loopdev::find(&Paths::of(&self.settings, id).disk())
    }

    /// Removes the rate limits of the disk of a sandbox that is about to end.
    pub fn unlimit(&self, id: &SandboxId, paths: &Paths) {
        let device = fs::read_to_string(paths.disk_device()).ok().and_then(|text| text.parse().ok());
        if let Some(device) = device
            && loopdev::is_free_or_of(device, id.as_str())
            && let Err(error) = self.cgroups.unlimit_disk(id.as_str(), device)
        {
            tracing::warn!(%id, %error, "cannot remove a rate limit of a loop device");
        }
    }

    /// Unmounts the disk of a sandbox without processes. Returns when everything is written.
    pub fn unmount(&self, id: &SandboxId) {
        // A statement of its own, so that the map is not locked meanwhile.
        let mounts = self.mounts().remove(id);
        drop(mounts);
    }
}
