//! Creates, freezes, limits and removes sandboxes, and says what they use.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use api::{Isolation, SandboxId};
use async_trait::async_trait;
use driver::{
    AtStep, ByteStream, DriverError, DriverStep, Hoard, MemoryKills, NetworkHook, Presence, ResourceUse,
    SandboxSpec, Sandboxes,
};

use super::start::Processes;
use super::{HostDriver, HostState};
use crate::agent::control_link;
use crate::agent::link::{self, Listener};
use crate::cgroup::{Leftover, Population, cpus_of};
use crate::disk::{self, Content};
use crate::paths::{bundles_dir, disk_bytes_in, ids_below, isolation_of, runtime_root, sandboxes_dir};
use crate::removal::{poll, remove_tree};

const REMOVE_TIMEOUT: Duration = Duration::from_secs(10);

#[async_trait]
impl Sandboxes for HostDriver {
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        self.run(spec, |host, spec| {
            let paths = host.paths(&spec.id);
            fs::create_dir_all(&paths.data).at(DriverStep::MakeDiskDirectory)?;
            if let Some(snapshot) = &spec.processes_from {
                host.share_processes(spec, snapshot, &paths.memory())?;
            }
            disk::ensure(&host.settings, &paths, spec.disk_mb, Content::of(spec))
        })
        .await
    }

    async fn start(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        self.launch(spec, network, Processes::New).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, |host, id| {
            host.require(id, Population::Running, "pause")?;
            if let Err(error) = host.hoarders.end_before_pause(id) {
                tracing::error!(%id, %error, "cannot look for memory that is charged to nobody before a pause");
            }
            host.freeze(id)
        })
        .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, |host, id| {
            host.require(id, Population::Frozen, "resume")?;
            host.thaw(id)
        })
        .await
    }

    async fn page_out(&self, id: &SandboxId) -> Result<u64, DriverError> {
        self.run(id, |host, id| {
            host.require(id, Population::Frozen, "page out")?;
            host.page_out(id).at(DriverStep::PageOut)
        })
        .await
    }

    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        self.run(spec, |host, spec| {
            let limited = host.cgroups.limit(spec.id.as_str(), spec.limits, &cpus_of(spec));
            limited.at(DriverStep::SetLimits)?;
            let paths = host.paths(&spec.id);
            match host.backend_of(&paths) {
                Some(backend) => backend.show_limits(&host.cgroups, spec, &paths),
                None => Ok(()),
            }
        })
        .await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, HostState::kill).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, HostState::stop).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, |host, id| {
            // Deleting the disk first saves its last writes to the host's disk.
            let removed = remove_tree(&host.paths(id).data).at(DriverStep::RemoveDisk);
            // Ends the processes even if the disk cannot be removed.
            host.stop(id)?;
            removed
        })
        .await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError> {
        self.open_link(id).await.at(DriverStep::ConnectAgent)
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        self.run(id, HostState::presence).await
    }

    async fn last_seen_running_ms(&self, id: &SandboxId) -> Result<Option<u64>, DriverError> {
        // Asked after a restart of the daemon: what it held open is closed, and the disk was not written after the last process ended.
        self.run(id, |host, id| {
            let written = fs::metadata(host.paths(id).disk()).and_then(|metadata| metadata.modified()).ok();
            let since_epoch = written.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
            Ok(since_epoch.and_then(|duration| u64::try_from(duration.as_millis()).ok()))
        })
        .await
    }

    async fn isolation(&self, id: &SandboxId) -> Option<Isolation> {
        let paths = self.host.paths(id);
        paths.run.exists().then(|| isolation_of(&paths))
    }

    async fn resource_use(&self, id: &SandboxId) -> Result<Option<ResourceUse>, DriverError> {
        self.run(id, |host, id| {
            let Some((cpu_us, memory, memory_cache)) = host.cgroups.usage(id.as_str()) else {
                return Ok(None);
            };
            let disk = disk_bytes_in(&host.settings.data_dir, id);
            Ok(Some(ResourceUse { cpu_us, memory, memory_cache, disk }))
        })
        .await
    }

    async fn memory_kills(&self, id: &SandboxId) -> Option<MemoryKills> {
        self.run(id, |host, id| Ok(host.cgroups.memory_kills(id.as_str()))).await.ok().flatten()
    }

    async fn end_hoarders(&self) -> Result<Vec<(SandboxId, Hoard)>, DriverError> {
        self.blocking(|host| host.hoarders.end().at(DriverStep::FindHoarders)).await
    }

    async fn list(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(|host| host.list().at(DriverStep::ListSandboxes)).await
    }
}

impl HostDriver {
    async fn open_link(&self, id: &SandboxId) -> io::Result<Box<dyn ByteStream>> {
        let paths = self.host.paths(id);
        if isolation_of(&paths) == Isolation::Container {
            return link::connect(&paths).await;
        }
        let listener = if paths.link_dir().exists() {
            Listener::of_earlier_version(&paths)?
        } else {
            let (host, id, paths) = (Arc::clone(&self.host), id.clone(), paths.clone());
            let listening = base::blocking(move || control_link::listen(&host.cgroups, id.as_str(), &paths));
            let (listener, process) = listening.await?;
            Listener::Tcp(tokio::net::TcpListener::from_std(listener)?, process)
        };
        let is_empty = || matches!(self.host.cgroups.population(id.as_str()), Ok(Population::Empty));
        link::accept(listener, &paths, is_empty).await
    }
}

impl HostState {
    fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let paths = self.paths(id);
        self.end_processes(id, &paths)?;
        if let Some(backend) = self.backend_of(&paths) {
            backend.clear(&self.settings, id)?;
        }
        // Also of a runtime that an earlier daemon used.
        let state = runtime_root(&self.settings).join(id.as_str());
        remove_tree(&state).at(DriverStep::RemoveRuntimeState)?;
        poll(REMOVE_TIMEOUT, || Ok(self.cgroups.remove(id.as_str())? == Leftover::None))
            .at(DriverStep::RemoveCgroups)?;
        remove_tree(&paths.run).at(DriverStep::RemoveSandboxDirectory)
    }

    /// Moves the memory of a paused sandbox to the host's swap space. Returns the bytes that became free.
    fn page_out(&self, id: &SandboxId) -> io::Result<u64> {
        if !has_swap()? {
            return Ok(0);
        }
        let used = || self.cgroups.usage(id.as_str()).map_or(0, |(_, memory, _)| memory);
        let before = used();
        self.cgroups.page_out(id.as_str(), before)?;
        Ok(before.saturating_sub(used()))
    }

    fn list(&self) -> io::Result<Vec<SandboxId>> {
        let mut ids = self.cgroups.sandboxes()?;
        for dir in [sandboxes_dir(&self.settings), bundles_dir(&self.settings), runtime_root(&self.settings)]
        {
            ids.extend(ids_below::<SandboxId>(&dir)?);
        }
        Ok(ids.into_iter().collect())
    }
}

/// Whether the host has swap space.
fn has_swap() -> io::Result<bool> {
    // The first line is a heading.
    Ok(fs::read_to_string("/proc/swaps")?.lines().nth(1).is_some())
}
