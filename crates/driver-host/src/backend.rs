//! The part of a driver in which backends differ: how the agent starts inside, and what the backend keeps of its own.

use std::fmt::Debug;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use api::{Isolation, SandboxId};
use driver::{AtStep, DriverError, DriverStep, NetworkHook, SandboxSpec};

use crate::cgroup::Cgroups;
use crate::disk::{Mounts, SnapshotMounts};
use crate::loopdev::DeviceNumber;
use crate::paths::Paths;
use crate::settings::{DiskRates, Settings};

/// A sandbox whose directories and disk exist.
#[derive(Debug)]
pub struct Start<'a> {
    pub settings: &'a Settings,
    pub cgroups: &'a Cgroups,
    pub snapshots: &'a SnapshotMounts,
    pub spec: &'a SandboxSpec,
    /// At least that of `spec`.
    pub isolation: Isolation,
    pub paths: &'a Paths,
    /// The first of its host ids.
    pub uid_base: u32,
    /// The processors it may run on, as cgroups list them.
    pub cpus: &'a str,
    /// The program of the agent.
    pub agent: &'a Path,
    /// The stored processes to continue, instead of an agent to start.
    pub memory: Option<&'a Path>,
}

impl Start<'_> {
    /// Sets the rate limits of the disk, and records its device for their removal.
    pub fn limit_disk(&self, device: DeviceNumber) -> Result<(), DriverError> {
        let rates = self.settings.disk_rates;
        let recorded = if rates == DiskRates::default() {
            Ok(())
        } else {
            fs::write(self.paths.disk_device(), device.to_string())
        };
        recorded
            .and_then(|()| self.cgroups.limit_disk(self.spec.id.as_str(), device, rates))
            .at(DriverStep::LimitDisk)
    }
}

/// A started sandbox.
pub struct Started {
    pub mounts: Mounts,
    /// The process that built the container. Its drop waits for its end, after the start was answered.
    pub helper: Option<Box<dyn Send>>,
}

/// How the processes of a sandbox are stored.
#[derive(Debug)]
pub struct Hibernation<'a> {
    /// An existing directory.
    pub unfinished: &'a Path,
    /// The name of the directory when it is complete.
    pub complete: &'a Path,
    /// Inherited by the program that stores the processes, and open as long as it runs.
    pub lock: OwnedFd,
}

/// Where the processes of a sandbox are copied to.
#[derive(Debug)]
pub struct ProcessCopy<'a> {
    /// An existing directory.
    pub target: &'a Path,
    /// As in [`Hibernation`].
    pub lock: OwnedFd,
}

/// Processes that stand still. They go on when this is dropped, or when the daemon dies.
pub trait Standstill: Send {
    /// Returns when they go on.
    fn end(self: Box<Self>) -> Result<(), DriverError>;
}

/// Starts agents. All calls block.
pub trait Backend: Debug + Send + Sync + 'static {
    /// Starts the agent and calls the network hook. Called on a thread that ends afterwards, so it may leave the host's
    /// namespaces. A failure leaves files in the sandbox's directories and possibly processes in its cgroups, which the driver
    /// removes.
    fn start(&self, start: &Start<'_>, network: Option<&NetworkHook>) -> Result<Started, DriverError>;

    /// Shows a running sandbox its limits, after those of its cgroups have changed, where the kernel does not.
    fn show_limits(
        &self,
        _cgroups: &Cgroups,
        _spec: &SandboxSpec,
        _paths: &Paths,
    ) -> Result<(), DriverError> {
        Ok(())
    }

    /// What stores and continues processes, with its release; `None` if the backend cannot.
    fn release(&self) -> Option<String> {
        None
    }

    /// Stores the processes of a running sandbox. They stand still afterwards; the caller kills them. If they cannot be stored, they go
    /// on. The directory is renamed by the program that fills it, which survives the daemon.
    fn hibernate(
        &self,
        _settings: &Settings,
        id: &SandboxId,
        _paths: &Paths,
        _hibernation: Hibernation<'_>,
    ) -> Result<(), DriverError> {
        Err(DriverError::failed(DriverStep::StoreProcesses, format!("the backend of {id} cannot")))
    }

    /// Copies the processes of a running sandbox. If they cannot be stored, they go on.
    fn copy_processes(
        &self,
        _settings: &Settings,
        id: &SandboxId,
        _paths: &Paths,
        _copy: ProcessCopy<'_>,
    ) -> Result<Box<dyn Standstill>, DriverError> {
        Err(DriverError::failed(DriverStep::CopyProcesses, format!("the backend of {id} cannot")))
    }

    /// Lets processes go on that may stand still. No effect if they go on.
    fn release_standstill(&self, _settings: &Settings, _id: &SandboxId, _paths: &Paths) {}

    /// Removes what the backend keeps of a sandbox without processes, outside of the sandbox's directories and cgroups.
    fn clear(&self, settings: &Settings, id: &SandboxId) -> Result<(), DriverError>;
}
