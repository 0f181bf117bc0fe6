//! The interface of isolation backends. The engine uses them only through [`Driver`].
//!
//! A driver keeps no memory that matters: everything it must find again after its process died is on the host
//! (directories, cgroups, processes), and [`Driver::list`] reads it from there. Every call is safe to repeat, and a call
//! whose future is dropped half-way leaves something that `destroy` removes completely.
//!
//! For tests there are (feature `testing`) a driver in memory, `fake`, and one suite that every driver passes, `conformance`.

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
pub mod fake;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;

use api::SandboxId;
use async_trait::async_trait;
use tokio::io::{AsyncRead, AsyncWrite};

/// One byte stream to the sandbox's agent. Only its bytes count, whatever carries it.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Connects a sandbox that is being started: called once with its network namespace, when its first process is there. Blocking, on
/// a thread that ends afterwards and may be left in another network namespace.
pub type Plug = Arc<dyn Fn(BorrowedFd<'_>) -> io::Result<()> + Send + Sync>;

/// The limits of a sandbox that can change while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub cpu: u32,
    pub memory_mb: u32,
}

/// What a driver needs to build a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSpec {
    pub id: SandboxId,
    /// Number of the sandbox's own range of host user ids; unique among the living.
    pub slot: u32,
    /// The image's layers, unpacked, topmost first; read-only and shared.
    pub layers: Vec<PathBuf>,
    pub limits: Limits,
    pub disk_mb: u32,
}

/// What there is of a sandbox on this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// Nothing at all.
    Absent,
    /// Its disk, but no process: made and not started, or its machine went down.
    Stopped,
    Running,
    Paused,
}

/// What a driver could not do.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// The sandbox is not there, or not in a state that allows the call.
    #[error("sandbox {id} is {presence:?}, which does not allow to {action}")]
    Unsuited { id: SandboxId, presence: Presence, action: &'static str },
    /// The host has no more of something (disk, loop devices, process ids).
    #[error("the host ran out of {what}: {source}")]
    Exhausted { what: &'static str, source: std::io::Error },
    /// A step failed.
    #[error("{step}: {reason}")]
    Failed { step: String, reason: String },
}

impl DriverError {
    /// A failed step with the reason it gave.
    pub fn failed(step: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Failed { step: step.into(), reason: reason.to_string() }
    }
}

/// An isolation backend. Calls for one sandbox come one at a time; calls for different ones come together.
#[async_trait]
pub trait Driver: Send + Sync + 'static {
    /// Lays out the sandbox's directory and disk. Afterwards it is [`Presence::Stopped`].
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Starts the sandbox's first process, the agent, on the disk that is there. Afterwards `connect` works. A plug that fails
    /// fails the start. A backend whose network cannot be plugged does not call the plug: nothing gets in or out of such a sandbox.
    async fn start(&self, spec: &SandboxSpec, plug: Option<Plug>) -> Result<(), DriverError>;

    /// Stops every process where it stands.
    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Lets every process go on.
    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Gives a started sandbox the limits that `spec` now has.
    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError>;

    /// Ends every process of the sandbox, paused or not, and returns when none runs any more. What else there is of it
    /// stays for `stop` or `destroy`.
    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes all of the sandbox but its disk. Afterwards it is [`Presence::Stopped`].
    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// Removes the sandbox and every trace of it. No error if there is none.
    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError>;

    /// A new byte stream to the agent, which has one at a time: the caller has dropped the older one.
    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError>;

    /// What there is of the sandbox now.
    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError>;

    /// When the sandbox last gave a sign of life that a reboot does not wipe, in milliseconds since the epoch; `None` where
    /// nothing tells. Asked when its processes are found gone, to end its running time there.
    async fn last_sign_ms(&self, id: &SandboxId) -> Result<Option<u64>, DriverError>;

    /// Every sandbox of which there is any trace on this host.
    async fn list(&self) -> Result<Vec<SandboxId>, DriverError>;
}
