//! The part of a driver in which backends differ: how the agent starts inside, and what the backend keeps of its own.

use std::fmt::Debug;
use std::os::fd::OwnedFd;

use api::{Isolation, SandboxId};
use driver::{DriverError, NetworkHook, SandboxSpec};

use crate::cgroup::Cgroups;
use crate::paths::Paths;
use crate::settings::Settings;

/// A sandbox whose directories and disk exist.
#[derive(Debug)]
pub struct Start<'a> {
    pub settings: &'a Settings,
    pub cgroups: &'a Cgroups,
    pub spec: &'a SandboxSpec,
    /// At least that of `spec`.
    pub isolation: Isolation,
    pub paths: &'a Paths,
    /// The first of its host ids.
    pub uid_base: u32,
    /// The processors it may run on, as cgroups list them.
    pub cpus: &'a str,
}

/// A started sandbox.
pub struct Started {
    /// Keeps the file system of the disk mounted. Otherwise the last process that ends would have to write everything to the disk
    /// first, even if it is about to be deleted.
    pub disk: OwnedFd,
    /// The process that built the container. Its drop waits for its end, after the start was answered.
    pub helper: Option<Box<dyn Send>>,
}

/// Starts agents. All calls block.
pub trait Backend: Debug + Send + Sync + 'static {
    /// Starts the agent and calls the network hook. Called on a thread that ends afterwards, so it may leave the host's
    /// namespaces. A failure leaves files in the sandbox's directories and possibly processes in its cgroups, which the driver
    /// removes.
    fn start(&self, start: &Start<'_>, network: Option<&NetworkHook>) -> Result<Started, DriverError>;

    /// Removes what the backend keeps of a sandbox without processes, outside of the sandbox's directories and cgroups.
    fn clear(&self, settings: &Settings, id: &SandboxId) -> Result<(), DriverError>;
}
