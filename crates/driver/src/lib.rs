//! The interface of isolation backends. The engine uses a backend only through [`Driver`].
//!
//! A driver keeps all its state on the host (directories, cgroups, processes), and [`Driver::list`] reads it from
//! there: a restarted daemon finds all sandboxes. Calls are idempotent. If the future of a call is dropped, `destroy`
//! removes what the call created.
//!
//! The feature `testing` adds an in-memory driver, `fake`, and a suite that each driver passes, `conformance`.

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod fake;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// A byte stream to the sandbox's agent, over any transport.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects a starting sandbox to the network. Called once with the sandbox's network namespace, after its first process
/// exists. The call blocks. It runs on a thread of its own, because it may leave the thread in another network namespace.
pub type NetworkHook = Arc<dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync>;

/// Memory of the host that no limit of a sandbox bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hoard {
    /// Connections that no program has accepted, or that hold more than all of a sandbox may.
    Connections,
    /// What sockets have received or are about to send, of kinds whose memory has no limit.
    SocketQueues,
    /// Open files of `/proc` that lxcfs serves.
    LxcfsFiles,
}

impl std::fmt::Display for Hoard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connections => "network connections that they did not read or accept",
            Self::SocketQueues => "queues of netlink, raw and ping sockets",
            Self::LxcfsFiles => "open files of /proc that lxcfs serves",
        })
    }
}

/// The limits of a sandbox that can change while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub cpu: u32,
    pub memory_mb: u32,
}

/// The parameters of a new sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    pub id: SandboxId,
    /// The number of the sandbox's range of host user ids. No two sandboxes on the host share one.
    pub slot: u32,
    /// The layers below its disk, topmost first: disks of snapshots, as [`DiskCopy::finish`] names them, and unpacked layers of the
    /// image. Read-only and shared.
    pub layers: Vec<PathBuf>,
    /// The disk of a snapshot, of which [`Driver::create`] and [`Driver::prepare_disk`] make a copy instead of an empty disk.
    pub disk_from: Option<PathBuf>,
    /// The snapshot whose processes [`Driver::create`] and [`Driver::prepare_disk`] copy, for [`Driver::wake`].
    pub processes_from: Option<SnapshotId>,
    pub limits: Limits,
    pub disk_mb: u32,
    /// The backend that starts it.
    pub isolation: Isolation,
}

/// The state of a sandbox on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The host has no trace of it.
    Absent,
    /// It has a disk and no processes: it was never started, or its processes ended.
    Stopped,
    /// It has a disk, no processes, and stored processes that [`Driver::wake`] continues.
    Hibernated,
    Running,
    Paused,
}

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

/// What a running sandbox uses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResourceUse {
    /// CPU time of all its processes since its start.
    pub cpu_us: u64,
    /// Bytes of memory, with the page cache of its files.
    pub memory: u64,
    /// Bytes of the page cache of its files.
    pub memory_cache: u64,
    /// Bytes that its disk occupies on the host.
    pub disk: u64,
}

/// The processes of a sandbox that the kernel has killed for lack of memory. Zero again after each start of the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryKills {
    pub count: u64,
    /// Whether the sandbox has been at its own limit. Otherwise the memory of the host, or of all sandboxes together, ran out.
    pub has_reached_limit: bool,
}

/// The snapshot whose disk a layer is; `None` for a layer of an image.
pub fn snapshot_of_layer(layer: &Path) -> Option<SnapshotId> {
    layer.file_name()?.to_str()?.strip_suffix(".img")?.parse().ok()
}

/// The disk of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotDisk {
    /// For [`SandboxSpec::layers`]. The file's name is the snapshot's id and `.img`.
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

/// A copy of a sandbox's disk in progress. If it is dropped, [`Driver::remove_snapshot`] removes what it wrote.
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

/// Why a driver call failed.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The sandbox does not exist, or its state does not allow the call.
    #[error("cannot {action} sandbox {id}: it is {presence:?}")]
    InvalidState { id: SandboxId, presence: Presence, action: &'static str },
    /// The host ran out of a resource such as disk space, loop devices or process ids.
    #[error("the host ran out of {what}: {source}")]
    Exhausted { what: &'static str, source: std::io::Error },
    /// The backend cannot store the processes as they are. They go on.
    #[error("cannot store the processes: {reason}")]
    NotStorable { reason: String },
    /// Stored processes cannot be continued by this release of the backend.
    #[error("the processes were stored by {stored}, and this host has {present}")]
    OtherRelease { stored: String, present: String },
    /// A step of the call failed.
    #[error("cannot {step}: {source}")]
    Failed { step: String, source: Box<dyn std::error::Error + Send + Sync> },
}

impl DriverError {
    /// A failed step and its cause, an error or a message.
    pub fn failed(
        step: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Failed { step: step.into(), source: source.into() }
    }
}

impl From<base::TaskLost> for DriverError {
    fn from(lost: base::TaskLost) -> Self {
        Self::failed("run a step of the driver", lost)
    }
}

/// An isolation backend. The engine makes one call at a time for each sandbox, and concurrent calls for different sandboxes.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
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

    /// Whether [`Driver::hibernate`] and [`SnapshotScope::Processes`] work for sandboxes with an isolation.
    fn can_store_processes(&self, _isolation: Isolation) -> bool {
        false
    }

    /// Stores the processes of a running or paused sandbox, with their memory, and ends them. The sandbox is [`Presence::Hibernated`]
    /// afterwards, and survives a power failure. If this fails before the processes are stored, the sandbox is as before, unless the
    /// backend lost them: then it is [`Presence::Stopped`]. Follow it with `stop`, which removes the rest. Returns the bytes that are
    /// stored.
    async fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError>;

    /// Continues the stored processes; otherwise like [`Driver::start`]. The stored processes stay, also if this fails.
    async fn wake(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError>;

    /// Moves the memory of a paused sandbox to the host's swap space, as far as there is some. Returns the bytes that became free.
    async fn page_out(&self, id: &SandboxId) -> Result<u64, DriverError>;

    /// Removes stored processes. Succeeds if there are none.
    async fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError>;

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

    /// Sandboxes with processes that use another file than the disk: somebody has replaced the disk under them, as a restore of the data
    /// directory does. What they write is lost. Called before any sandbox is started.
    async fn with_replaced_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(Vec::new())
    }

    /// What the sandbox has written to its disk; zero if the backend does not know.
    async fn disk_use(&self, _id: &SandboxId) -> Result<DiskUse, DriverError> {
        Ok(DiskUse::default())
    }

    /// Sandboxes with processes whose disk has become read-only, because a write of its file system failed. It stays so until the
    /// sandbox is stopped.
    async fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(Vec::new())
    }

    /// Whether the sandbox is one of [`Self::with_read_only_disks`]. Called at any time, also during another call for the sandbox.
    async fn has_read_only_disk(&self, id: &SandboxId) -> Result<bool, DriverError> {
        Ok(self.with_read_only_disks().await?.contains(id))
    }

    /// What a running sandbox uses; `None` if the backend does not know, or the sandbox has no processes.
    async fn resource_use(&self, _id: &SandboxId) -> Result<Option<ResourceUse>, DriverError> {
        Ok(None)
    }

    /// The processes that the kernel has killed for lack of memory since the sandbox was started, also if none is left; `None` if the
    /// backend does not know, or nothing of the sandbox is left. Called at any time, also during another call for the sandbox.
    async fn memory_kills(&self, _id: &SandboxId) -> Option<MemoryKills> {
        None
    }

    /// Ends the commands of sandboxes that hold memory of the host which no limit of theirs counts. Returns which, and what they held.
    /// Called four times a second. While the totals of the host are low, it looks at no sandbox.
    async fn end_hoarders(&self) -> Result<Vec<(SandboxId, Hoard)>, DriverError> {
        Ok(Vec::new())
    }

    /// Begins to copy the sandbox's disk. The sandbox may run, and the engine may make other calls for it meanwhile.
    async fn copy_disk(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Box<dyn DiskCopy>, DriverError>;

    /// Removes the disk of a snapshot, complete or not. Succeeds if it does not exist. No sandbox may have it as a layer.
    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError>;

    /// Removes the processes of a snapshot, and keeps its disk. Succeeds if there are none.
    async fn discard_snapshot_processes(&self, snapshot: &SnapshotId) -> Result<(), DriverError>;

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

    /// Creates another disk for an existing sandbox, and copies the processes of a snapshot. Neither is used before
    /// [`Driver::adopt_disk`].
    async fn prepare_disk(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Replaces the disk of a sandbox without processes by the prepared one, and stored processes by those of the snapshot, or by
    /// none. Succeeds if that was done before.
    async fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes a prepared disk that is not wanted any more. Succeeds if there is none.
    async fn discard_prepared_disk(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// All sandboxes of which this host has a trace.
    async fn list(&self) -> Result<Vec<SandboxId>, DriverError>;
}
