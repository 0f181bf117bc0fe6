//! Starts a sandbox, or continues its stored processes.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use driver::{AtStep, DriverError, DriverStep, NetworkHook, SandboxSpec};

use super::{HostDriver, HostState};
use crate::agent::copies;
use crate::backend::{Start, Started};
use crate::cgroup::cpus_of;
use crate::description;
use crate::disk::{self, Content};
use crate::paths::{self, Paths};
use crate::stored_processes;

/// The processes of a sandbox that starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Processes {
    New,
    Stored,
}

impl HostDriver {
    pub(super) async fn launch(
        &self,
        spec: &SandboxSpec,
        network: Option<NetworkHook>,
        processes: Processes,
    ) -> Result<(), DriverError> {
        let spec = spec.clone();
        let host = Arc::clone(&self.host);
        let (done, wait) = tokio::sync::oneshot::channel();
        // Not on a pooled thread: it cannot return to the host's namespaces.
        std::thread::Builder::new()
            .name("launch".to_owned())
            .spawn(move || {
                let (result, helper) = match host.start(&spec, network.as_ref(), processes) {
                    Ok(Started { mounts, helper }) => {
                        host.disks.keep(spec.id, mounts);
                        (Ok(()), helper)
                    }
                    Err(error) => (Err(error), None),
                };
                // Fails if the create was cancelled; its caller then destroys the sandbox.
                let _ = done.send(result);
                drop(helper);
            })
            .map_err(|source| DriverError::Exhausted { what: "threads", source })?;
        wait.await.unwrap_or_else(|_| {
            Err(DriverError::failed(DriverStep::StartSandbox, "the launching thread panicked"))
        })
    }
}

impl HostState {
    fn start(
        &self,
        spec: &SandboxSpec,
        network: Option<&NetworkHook>,
        processes: Processes,
    ) -> Result<Started, DriverError> {
        self.disks.unmount(&spec.id);
        let Self { settings, cgroups, snapshots, .. } = self;
        let paths = &self.paths(&spec.id);
        let uid_base = description::uid_base(settings, spec.slot)?;
        make_traversable(&paths.run).at(DriverStep::MakeSandboxDirectory)?;
        // After a power failure the disk of a sandbox that did not sync may be missing. A new disk loses no synced data.
        fs::create_dir_all(&paths.data).at(DriverStep::MakeDiskDirectory)?;
        match processes {
            Processes::New => {
                // They would be older than the disk.
                self.discard_memory(&spec.id)?;
                disk::ensure(settings, paths, spec.disk_mb, Content::without_copy(spec))?;
            }
            Processes::Stored if paths.disk().exists() => {}
            Processes::Stored => {
                let missing = "the disk of the sandbox is missing";
                return Err(DriverError::failed(DriverStep::ContinueProcesses, missing));
            }
        }
        let (isolation, backend) = self.backend_for(spec)?;
        paths::record_isolation(paths, isolation).at(DriverStep::RecordStart)?;
        let cpus = &cpus_of(spec);
        let (agent, memory) = match processes {
            Processes::Stored => {
                let memory = stored_processes::find(paths)?;
                Self::check_release(&memory, backend)?;
                (self.restore_agent(&memory, paths)?, Some(memory))
            }
            Processes::New if backend.release().is_some() => (self.own_agent(paths, &self.agent_name)?, None),
            Processes::New => (settings.agent.clone(), None),
        };
        let (agent, memory) = (agent.as_path(), memory.as_deref());
        let start =
            Start { settings, cgroups, snapshots, spec, isolation, paths, uid_base, cpus, agent, memory };
        let started = backend.start(&start, network)?;
        if processes == Processes::Stored {
            stored_processes::mark_used(paths).at(DriverStep::ContinueProcesses)?;
        }
        Ok(started)
    }

    /// The agent of stored processes. Its token is restored too.
    fn restore_agent(&self, memory: &Path, paths: &Paths) -> Result<PathBuf, DriverError> {
        let name = stored_processes::restore_token(memory, paths)
            .and_then(|()| stored_processes::agent_name(memory))
            .at(DriverStep::ReadStoredProcesses)?;
        self.own_agent(paths, &name)
    }

    /// Records which copy of the agent a sandbox runs.
    fn own_agent(&self, paths: &Paths, name: &str) -> Result<PathBuf, DriverError> {
        fs::write(paths.agent_name(), name).at(DriverStep::RecordStart)?;
        Ok(copies::path(&self.settings, name))
    }
}

/// Creates a directory that the container's root, an unprivileged user on the host, can traverse.
fn make_traversable(dir: &Path) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o711))
}
