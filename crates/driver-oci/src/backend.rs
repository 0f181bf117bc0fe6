//! Containers built by an OCI runtime instead of the launcher.

use std::path::PathBuf;

use api::SandboxId;
use driver::{AtStep, DriverError, DriverStep, NetworkHook};
use driver_host::{
    Assembled, Backend, Settings, Start, Started, assemble, first_process, listen, mount_place,
    raise_priority,
};
use rootfs::{hide_host_counters, leave_host_namespace};

use crate::attribute_filter::HostAttributes;
use crate::bundle::{filter, write_bundle};
use crate::netns;
use crate::runtime::{self, AgentChannel, Invocation};

/// `runc`, `crun` or `youki`.
#[derive(Debug)]
pub struct OciRuntime {
    runtime: Invocation,
}

impl OciRuntime {
    /// `args` are the program's arguments before the subcommand.
    pub fn new(program: PathBuf, args: Vec<String>) -> Self {
        Self { runtime: Invocation { program, args, attributes: HostAttributes::Served } }
    }
}

impl Backend for OciRuntime {
    fn start(&self, start: &Start<'_>, network: Option<&NetworkHook>) -> Result<Started, DriverError> {
        let Start { settings, spec, paths, .. } = *start;
        let listener = listen(paths).at(DriverStep::OpenAgentLink)?;
        leave_host_namespace().at(DriverStep::LeaveMountNamespace)?;
        let Assembled { mounts, device } =
            assemble(spec, paths, start.snapshots, &mount_place(settings), start.uid_base)?;
        // After the disk is attached: the host's /sys then has all directories to cover.
        write_bundle(start, filter()?, None)?;
        runtime::run(&self.runtime, settings, &spec.id, paths, AgentChannel::Listener(listener), &[])?;
        // No command runs yet.
        start.limit_disk(device)?;
        limit_network(start)?;
        prioritise_agent(start);
        if let Some(hook) = network {
            netns::connect(paths, hook).at(DriverStep::ConnectNetwork)?;
        }
        Ok(Started { mounts, helper: None })
    }

    /// The runtime has only a state file, and cgroups, which the driver removes. Its delete command would take a tenth of the
    /// processor time of a short sandbox.
    fn clear(&self, _: &Settings, _: &SandboxId) -> Result<(), DriverError> {
        Ok(())
    }
}

/// What a runtime does not limit of the network.
fn limit_network(start: &Start<'_>) -> Result<(), DriverError> {
    start.cgroups.limit_connections(start.spec.id.as_str()).at(DriverStep::LimitConnections)?;
    match first_process(start.paths) {
        Some(pid) => hide_host_counters(pid).at(DriverStep::LimitConnections),
        None => Err(DriverError::failed(DriverStep::FindFirstProcess, "the runtime did not record it")),
    }
}

fn prioritise_agent(start: &Start<'_>) {
    // No command was started yet: the agent is the only process.
    let processes = start.cgroups.processes(start.spec.id.as_str());
    let done = processes.and_then(|pids| pids.into_iter().try_for_each(raise_priority));
    if let Err(error) = done {
        tracing::warn!(id = %start.spec.id, %error, "cannot raise the priority of an agent above that of its commands");
    }
}
