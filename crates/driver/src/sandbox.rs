//! What sandboxes are to a driver: their parameters, their state and what they use.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use api::{Isolation, SandboxId, SnapshotId};
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
    /// The layers below its disk, topmost first: disks of snapshots, as [`crate::DiskCopy::finish`] names them, and unpacked layers of the
    /// image. Read-only and shared.
    pub layers: Vec<PathBuf>,
    /// The disk of a snapshot, of which [`crate::Sandboxes::create`] and [`crate::Disks::prepare_disk`] make a copy instead of an empty disk.
    pub disk_from: Option<PathBuf>,
    /// The snapshot whose processes [`crate::Sandboxes::create`] and [`crate::Disks::prepare_disk`] copy, for [`crate::StoredProcesses::wake`].
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
    /// It has a disk, no processes, and stored processes that [`crate::StoredProcesses::wake`] continues.
    Hibernated,
    Running,
    Paused,
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
