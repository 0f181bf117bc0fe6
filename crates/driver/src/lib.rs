//! The interface of isolation backends. The engine uses a backend only through [`Driver`], which has three parts: [`Sandboxes`],
//! [`Disks`] and [`StoredProcesses`].
//!
//! A driver keeps all its state on the host (directories, cgroups, processes), and [`Sandboxes::list`] reads it from
//! there: a restarted daemon finds all sandboxes. Calls are idempotent. If the future of a call is dropped, `destroy`
//! removes what the call created.
//!
//! The feature `testing` adds an in-memory driver, `fake`, and a suite that each driver passes, `conformance`.

#[cfg(feature = "testing")]
pub mod conformance;
mod disk;
mod error;
#[cfg(feature = "testing")]
pub mod fake;
mod sandbox;

use std::path::PathBuf;

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;

pub use disk::{DiskCopy, DiskUse, SnapshotDisk, SnapshotFile, SnapshotScope, snapshot_of_layer};
pub use error::{AtStep, DriverError, DriverStep};
pub use sandbox::{ByteStream, Hoard, Limits, MemoryKills, NetworkHook, Presence, ResourceUse, SandboxSpec};

/// An isolation backend. The engine makes one call at a time for each sandbox, and concurrent calls for different sandboxes.
pub trait Driver: Sandboxes + Disks + StoredProcesses {}
impl<T: Sandboxes + Disks + StoredProcesses> Driver for T {}

/// Creates, runs and removes sandboxes, and says what they use.
#[async_trait]
pub trait Sandboxes: Send + Sync + 'static {
    /// Creates the sandbox's directory and disk. The sandbox is [`Presence::Stopped`] afterwards, or with the processes of a snapshot
    /// [`Presence::Hibernated`].
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Starts the agent, which is the sandbox's first process, on the existing disk. `connect` works afterwards. An error of the
    /// network hook fails the start. A backend without a network namespace does not call the hook; its sandboxes have no network.
    async fn start(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError>;

    /// Freezes all processes of the sandbox.
    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Thaws all processes of the sandbox.
    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Moves the memory of a paused sandbox to the host's swap space, as far as there is some. Returns the bytes that became free.
    async fn page_out(&self, id: &SandboxId) -> Result<u64, DriverError>;

    /// Applies the limits in `spec` to a started sandbox.
    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Kills all processes of the sandbox, frozen or not, and returns when they have ended. Everything else stays for `stop` or
    /// `destroy`.
    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes everything except the disk and stored processes. The sandbox is [`Presence::Stopped`] or [`Presence::Hibernated`]
    /// afterwards.
    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes the sandbox completely. Succeeds if it does not exist.
    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Opens a byte stream to the agent. The agent serves one stream at a time: the caller drops the previous one first.
    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError>;

    /// The current state of the sandbox.
    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError>;

    /// When the sandbox was last known to run, in milliseconds since the epoch, from a source that survives a reboot; `None` if
    /// there is none. The engine ends the running time there when it finds the processes gone.
    async fn last_seen_running_ms(&self, id: &SandboxId) -> Result<Option<u64>, DriverError>;

    /// What isolates a sandbox that was started since the host booted; `None` for others, or if the backend does not know.
    async fn isolation(&self, _id: &SandboxId) -> Option<Isolation> {
        None
    }

    /// What a running sandbox uses; `None` if the backend does not know, or the sandbox has no processes.
    async fn resource_use(&self, id: &SandboxId) -> Result<Option<ResourceUse>, DriverError>;

    /// The processes that the kernel has killed for lack of memory since the sandbox was started, also if none is left; `None` if the
    /// backend does not know, or nothing of the sandbox is left. Called at any time, also during another call for the sandbox.
    async fn memory_kills(&self, id: &SandboxId) -> Option<MemoryKills>;

    /// Ends the commands of sandboxes that hold memory of the host which no limit of theirs counts. Returns which, and what they held.
    /// Called four times a second. While the totals of the host are low, it looks at no sandbox.
    async fn end_hoarders(&self) -> Result<Vec<(SandboxId, Hoard)>, DriverError> {
        Ok(Vec::new())
    }

    /// All sandboxes of which this host has a trace.
    async fn list(&self) -> Result<Vec<SandboxId>, DriverError>;
}

/// The disks of sandboxes, and snapshots.
#[async_trait]
pub trait Disks: Send + Sync + 'static {
    /// What the sandbox has written to its disk; zero if the backend does not know.
    async fn disk_use(&self, id: &SandboxId) -> Result<DiskUse, DriverError>;

    /// Sandboxes with processes that use another file than the disk: somebody has replaced the disk under them, as a restore of the data
    /// directory does. What they write is lost. Called before any sandbox is started.
    async fn with_replaced_disks(&self) -> Result<Vec<SandboxId>, DriverError>;

    /// Whether the sandbox has a disk on the host. One that was removed has none, also if a restored database has the sandbox again.
    async fn has_disk(&self, id: &SandboxId) -> Result<bool, DriverError>;

    /// Sandboxes with processes whose disk has become read-only, because a write of its file system failed. It stays so until the
    /// sandbox is stopped.
    async fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError>;

    /// Whether the sandbox is one of [`Self::with_read_only_disks`]. Called at any time, also during another call for the sandbox.
    async fn has_read_only_disk(&self, id: &SandboxId) -> Result<bool, DriverError> {
        Ok(self.with_read_only_disks().await?.contains(id))
    }

    /// Creates another disk for an existing sandbox, and copies the processes of a snapshot. Neither is used before
    /// [`Self::adopt_disk`].
    async fn prepare_disk(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Replaces the disk of a sandbox without processes by the prepared one, and stored processes by those of the snapshot, or by
    /// none. Succeeds if that was done before.
    async fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes a prepared disk that is not wanted any more. Succeeds if there is none.
    async fn discard_prepared_disk(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Begins to copy the sandbox's disk. The sandbox may run, and the engine may make other calls for it meanwhile.
    async fn copy_disk(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Box<dyn DiskCopy>, DriverError>;

    /// Removes the disk of a snapshot, complete or not. Succeeds if it does not exist. No sandbox may have it as a layer.
    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError>;

    /// All snapshots of which this host has a trace.
    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, DriverError>;

    /// The layer of a snapshot, as [`DiskCopy::finish`] names it, whether or not the snapshot is on this host.
    fn snapshot_layer(&self, snapshot: &SnapshotId) -> PathBuf;

    /// The files of a snapshot: the disk, or the processes. They never change. None if this host lacks them.
    async fn snapshot_files(
        &self,
        snapshot: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<Vec<SnapshotFile>, DriverError>;

    /// Bytes that the files of a snapshot occupy on this host, complete or not; 0 if it has none.
    async fn snapshot_bytes(&self, snapshot: &SnapshotId) -> Result<u64, DriverError>;

    /// Where to write the files of a snapshot from another host. What an earlier, interrupted call left is replaced.
    async fn receive_snapshot(
        &self,
        snapshot: &SnapshotId,
        names: Vec<String>,
    ) -> Result<Vec<PathBuf>, DriverError>;

    /// Makes the received files usable, and durable.
    async fn complete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError>;
}

/// Stores the processes of sandboxes with their memory, and continues them.
#[async_trait]
pub trait StoredProcesses: Send + Sync + 'static {
    /// Whether [`Self::hibernate`] and [`SnapshotScope::Processes`] work for sandboxes with an isolation.
    fn can_store_processes(&self, isolation: Isolation) -> bool;

    /// Stores the processes of a running or paused sandbox, with their memory, and ends them. The sandbox is [`Presence::Hibernated`]
    /// afterwards, and survives a power failure. If this fails before the processes are stored, the sandbox is as before, unless the
    /// backend lost them: then it is [`Presence::Stopped`]. Follow it with `stop`, which removes the rest. Returns the bytes that are
    /// stored.
    async fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError>;

    /// Continues the stored processes; otherwise like [`Sandboxes::start`]. The stored processes stay, also if this fails.
    async fn wake(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError>;

    /// Removes stored processes. Succeeds if there are none.
    async fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes the processes of a snapshot, and keeps its disk. Succeeds if there are none.
    async fn discard_snapshot_processes(&self, snapshot: &SnapshotId) -> Result<(), DriverError>;
}
