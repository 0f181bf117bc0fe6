//! The interface of a network for the engine.

use std::os::fd::BorrowedFd;

use api::{EgressPolicy, SandboxId};
use async_trait::async_trait;

/// The identity of a sandbox in the network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    pub id: SandboxId,
    /// Unique among living sandboxes; determines the address and the name of the link.
    pub slot: u32,
}

/// Traffic since the sandbox's processes were last started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes_out: u64,
    pub bytes_in: u64,
    /// Open connections of the proxy.
    pub connections: u64,
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {step}: {source}")]
pub struct NetError {
    pub step: &'static str,
    source: Box<dyn std::error::Error + Send + Sync>,
}

impl NetError {
    pub fn new(step: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { step, source: source.into() }
    }
}

/// A network for sandboxes. Calls are idempotent. There is one call at a time for each sandbox.
#[async_trait]
pub trait Network: Send + Sync + 'static {
    /// Restores the network of living sandboxes, and removes links and rules of all others. Called once, before any other
    /// call.
    async fn recover(&self, living: &[(Guest, EgressPolicy)]) -> Result<(), NetError>;

    /// Connects the network namespace of a starting sandbox. Nothing passes before `apply`, unless a policy is in force
    /// from an earlier start. Blocks, on a thread that ends afterwards: it may leave the host's namespace.
    fn plug(&self, guest: &Guest, namespace: BorrowedFd<'_>) -> Result<(), NetError>;

    /// Whether a sandbox has its link to the host.
    async fn is_plugged(&self, _guest: &Guest) -> bool {
        true
    }

    /// Puts a policy in force. Connections that it forbids are cut.
    async fn apply(&self, guest: &Guest, policy: &EgressPolicy) -> Result<(), NetError>;

    /// Removes the network of a sandbox. No error if it has none.
    async fn unplug(&self, guest: &Guest) -> Result<(), NetError>;

    async fn usage(&self, guest: &Guest) -> Usage;

    /// The usage of several sandboxes together. Blocks while the kernel lists its links: not for an async worker.
    fn total_usage(&self, guests: &[Guest]) -> Usage;

    /// Stops DNS, proxy and watchers. Links and rules stay: sandboxes continue to run.
    async fn close(&self);

    /// Removes the shared state, if no sandbox is left.
    async fn retire(&self) -> Result<(), NetError>;
}
