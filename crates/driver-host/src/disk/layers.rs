//! The disks of snapshots that sandboxes have as layers. Each is mounted once, and every start gets a mount of its own of the same file
//! system, so that all sandboxes share its page cache.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base::IgnorePoison;
use driver::{AtStep, DriverError, DriverStep, snapshot_of_layer};

use super::ext4::mount_read_only;
use crate::loopdev::{self, LoopDevice};

/// Disks that stay mounted while no sandbox uses them.
const MOST_OPEN: usize = 32;

/// A layer of a sandbox that starts.
#[derive(Debug)]
pub enum OpenLayer {
    Directory(PathBuf),
    /// A detached mount of the disk of a snapshot.
    Snapshot(OwnedFd),
}

impl OpenLayer {
    /// The mount of a snapshot's disk.
    pub fn snapshot(&self) -> Option<&OwnedFd> {
        match self {
            Self::Directory(_) => None,
            Self::Snapshot(mount) => Some(mount),
        }
    }

    pub fn as_layer(&self) -> rootfs::Layer<'_> {
        match self {
            Self::Directory(path) => rootfs::Layer::Directory(path),
            Self::Snapshot(mount) => rootfs::Layer::Snapshot(mount),
        }
    }
}

/// The mounted disks of snapshots, the last used one last.
#[derive(Debug, Default)]
pub struct SnapshotMounts {
    open: Mutex<VecDeque<OpenSnapshot>>,
}

/// Keeps the file system of a snapshot mounted.
#[derive(Debug)]
struct OpenSnapshot {
    image: PathBuf,
    device: LoopDevice,
    _mount: OwnedFd,
}

impl SnapshotMounts {
    /// Opens the layers of a sandbox.
    pub fn open(&self, layers: &[PathBuf]) -> Result<Vec<OpenLayer>, DriverError> {
        let open = layers.iter().map(|layer| match snapshot_of_layer(layer) {
            None => Ok(OpenLayer::Directory(layer.clone())),
            Some(_) => {
                self.mount(layer).map(OpenLayer::Snapshot).at(DriverStep::MountSnapshot(layer.clone()))
            }
        });
        open.collect()
    }

    /// Releases the disk of a snapshot that is about to be removed.
    pub fn close(&self, image: &Path) {
        self.open.lock().ignore_poison().retain(|open| open.image != image);
    }

    fn mount(&self, image: &Path) -> io::Result<OwnedFd> {
        // Locked during the mount, so that a disk does not get two devices.
        let mut open = self.open.lock().ignore_poison();
        let found = open.iter().position(|open| open.image == image).and_then(|index| open.remove(index));
        let snapshot = match found {
            Some(snapshot) => snapshot,
            None => {
                let device = loopdev::attach_read_only(image)?;
                let mount = mount_read_only(&device.path)?;
                OpenSnapshot { image: image.to_owned(), device, _mount: mount }
            }
        };
        let mount = mount_read_only(&snapshot.device.path);
        open.push_back(snapshot);
        if open.len() > MOST_OPEN {
            open.pop_front();
        }
        mount
    }
}
