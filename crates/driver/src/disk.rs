//! What disks and snapshots are to a driver. The disk of a snapshot never changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use api::SnapshotId;
use async_trait::async_trait;

use crate::DriverError;

/// What a sandbox has written to its disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUse {
    /// Bytes that its disk occupies on the host.
    pub allocated: u64,
    /// Bytes that wait in the page cache to be written.
    pub dirty: u64,
    /// Bytes of its stored processes.
    pub stored: u64,
}

/// The snapshot whose disk a layer is; `None` for a layer of an image.
pub fn snapshot_of_layer(layer: &Path) -> Option<SnapshotId> {
    layer.file_name()?.to_str()?.strip_suffix(".img")?.parse().ok()
}

/// The disk of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotDisk {
    /// For [`crate::SandboxSpec::layers`]. The file's name is the snapshot's id and `.img`.
    pub layer: PathBuf,
    /// Bytes that it occupies on the host, with the processes.
    pub bytes: u64,
}

/// A file of a snapshot. The name is the same on all hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    pub name: String,
    pub path: PathBuf,
}

/// What a snapshot has beside the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotScope {
    Disk,
    /// The processes and their memory, as they are at the same moment.
    Processes,
}

/// A copy of a sandbox's disk in progress. If it is dropped, [`crate::Disks::remove_snapshot`] removes what it wrote.
#[async_trait]
pub trait DiskCopy: Send {
    /// Copies what has changed since the copy began, while the processes of the sandbox are frozen. The engine makes no other call for
    /// the sandbox meanwhile. Returns how long the processes were frozen; zero if there are none, or if they were frozen before.
    ///
    /// With [`SnapshotScope::Processes`] the sandbox is running or hibernated. Its network connections may break, also the stream to
    /// the agent.
    async fn capture(&mut self, scope: SnapshotScope) -> Result<Duration, DriverError>;

    /// Makes the copy usable. Afterwards it survives a power failure.
    async fn finish(self: Box<Self>) -> Result<SnapshotDisk, DriverError>;
}
