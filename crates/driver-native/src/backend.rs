//! Implements [`Backend`] by one launcher process for each start.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use api::SandboxId;
use driver::{AtStep, DriverError, DriverStep, NetworkHook, SandboxSpec};
use driver_host::{
    Backend, Cgroups, Mounts, OpenLayer, Paths, Settings, Start, Started, listen, mount_disk, raise_priority,
};
use launcher::send;

use crate::launchers::{Launcher, Launchers};
use crate::plan::plan;
use crate::quota::rewrite_quota;
use crate::seccomp::{Instruction, compile};

/// The backend that needs no runtime.
#[derive(Debug)]
pub struct Native {
    program: PathBuf,
    launchers: Launchers,
    filter: Vec<Instruction>,
}

impl Native {
    /// `program` is `sandbox-launcher`.
    pub fn new(program: PathBuf) -> Result<Self, DriverError> {
        let seccomp = driver_host::seccomp().at(DriverStep::MakeCallFilter)?;
        Ok(Self { program, launchers: Launchers::default(), filter: compile(&seccomp)? })
    }
}

impl Backend for Native {
    fn start(&self, start: &Start<'_>, network: Option<&NetworkHook>) -> Result<Started, DriverError> {
        let Start { settings, cgroups, spec, paths, .. } = *start;
        let name = spec.id.as_str();
        // The launcher loads while the rest is prepared.
        let mut launcher = Launcher::spawn(&self.launchers, &self.program, start)?;
        cgroups
            .create(name, start.isolation, spec.limits, start.cpus, settings.pids_max)
            .at(DriverStep::MakeCgroups)?;
        let (disk, device) = mount_disk(&paths.disk())?;
        start.limit_disk(device)?;
        let listener = listen(paths).at(DriverStep::OpenAgentLink)?;
        let cgroup = cgroups.open_for_fork(name).at(DriverStep::MakeCgroups)?;
        let layers = start.snapshots.open(&spec.layers)?;
        let snapshots = layers.iter().filter_map(OpenLayer::snapshot);
        let files = [&disk, &listener].into_iter().chain(snapshots).chain(cgroup.as_ref());
        let files: Vec<BorrowedFd<'_>> = files.map(AsFd::as_fd).collect();
        send(&launcher.socket, &plan(start, &layers, &self.filter)?, &files).at(DriverStep::ReachLauncher)?;

        let (pid, namespace) = launcher.forked()?;
        fs::write(paths.first_process(), pid.to_string()).at(DriverStep::RecordStart)?;
        if let Some(hook) = network {
            hook(namespace.as_fd()).at(DriverStep::ConnectNetwork)?;
        }
        let root = launcher.done()?;
        if let Err(error) = raise_priority(pid) {
            tracing::warn!(id = %spec.id, %error, "cannot raise the priority of an agent above that of its commands");
        }
        Ok(Started { mounts: Mounts { root, disk }, helper: Some(Box::new(launcher)) })
    }

    fn show_limits(&self, cgroups: &Cgroups, spec: &SandboxSpec, paths: &Paths) -> Result<(), DriverError> {
        rewrite_quota(cgroups, spec, paths).at(DriverStep::ShowLimits)
    }

    fn clear(&self, _: &Settings, _: &SandboxId) -> Result<(), DriverError> {
        Ok(())
    }
}
