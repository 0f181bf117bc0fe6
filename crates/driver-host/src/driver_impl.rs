//! Implements the trait [`Driver`] for all backends: each call runs on a thread that may block.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;
use driver::{
    AtStep, ByteStream, DiskCopy, DiskUse, Disks, DriverError, DriverStep, Hoard, MemoryKills, NetworkHook,
    Presence, ResourceUse, SandboxSpec, Sandboxes, SnapshotFile, SnapshotScope, StoredProcesses,
};

use crate::backend::Started;
use crate::cgroup::{Cgroups, Population};
use crate::control_link;
use crate::copy::HostCopy;
use crate::disk;
use crate::inner::{Backends, FREEZE_TIMEOUT, Inner, Processes, new_disk};
use crate::kernel_tables::shared_limits;
use crate::link::{self, Listener};
use crate::names;
use crate::paths::{
    Paths, bundles_dir, ids_below, isolation_of, mount_place, runtime_root, sandboxes_dir, snapshots_dir,
    templates_dir,
};
use crate::placement;
use crate::reap::become_subreaper;
use crate::removal::{remove_if_exists, remove_tree};
use crate::settings::Settings;
use crate::{hoarders, read_only_disks, replaced_disks, snapshot, stored_processes, transfer};

/// The sandboxes on this host.
#[derive(Debug, Clone)]
pub struct HostDriver {
    inner: Arc<Inner>,
}

impl HostDriver {
    /// Creates the shared directories.
    pub fn new(settings: Settings, backends: Backends) -> Result<Self, DriverError> {
        for (dir, mode) in [
            // The containers' root users need to traverse these directories, but not to list them.
            (settings.run_dir.clone(), 0o711),
            (bundles_dir(&settings), 0o711),
            (runtime_root(&settings), 0o700),
            (mount_place(&settings), 0o711),
            (sandboxes_dir(&settings), 0o700),
            (snapshots_dir(&settings), 0o700),
            (templates_dir(&settings), 0o700),
        ] {
            fs::create_dir_all(&dir).at(DriverStep::PrepareDirectories)?;
            fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).at(DriverStep::PrepareDirectories)?;
        }
        disk::clear_unfinished(&settings).at(DriverStep::PrepareDirectories)?;
        names::write(&settings).at(DriverStep::PrepareDirectories)?;
        become_subreaper().at(DriverStep::PrepareDirectories)?;
        let cgroups = Cgroups::of_host(&settings.cgroup_parent);
        if let Some(megabytes) = settings.memory_max_mb {
            cgroups.limit_all(shared_limits(megabytes)).at(DriverStep::PrepareDirectories)?;
        }
        if let Err(error) = cgroups.unlimit_free_disks() {
            tracing::warn!(%error, "cannot remove the rate limits of an earlier daemon");
        }
        let inner = Inner::new(settings, cgroups, backends).at(DriverStep::PrepareDirectories)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Removes the shared directories and cgroups if no sandbox is left. The driver must not be used afterwards.
    pub async fn retire(&self) -> Result<(), DriverError> {
        self.blocking(|inner| {
            // The empty name stands for the parent cgroup.
            inner.cgroups.remove("").at(DriverStep::RemoveDirectories)?;
            for dir in [
                bundles_dir(&inner.settings),
                runtime_root(&inner.settings),
                mount_place(&inner.settings),
                inner.settings.run_dir.clone(),
            ] {
                // A directory that is not empty is in use.
                match fs::remove_dir(&dir) {
                    Err(error)
                        if !matches!(
                            error.kind(),
                            io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty
                        ) =>
                    {
                        return Err(DriverError::failed(DriverStep::RemoveDirectories, error));
                    }
                    _ => {}
                }
            }
            Ok(())
        })
        .await
    }

    /// Runs blocking work on the runtime's pool of blocking threads.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, DriverError> + Send + 'static,
    ) -> Result<T, DriverError> {
        let inner = Arc::clone(&self.inner);
        base::blocking(move || work(&inner)).await
    }

    /// Starts a sandbox, or wakes it.
    async fn launch(
        &self,
        spec: &SandboxSpec,
        network: Option<NetworkHook>,
        processes: Processes,
    ) -> Result<(), DriverError> {
        let spec = spec.clone();
        let inner = Arc::clone(&self.inner);
        let (done, wait) = tokio::sync::oneshot::channel();
        // Not on a pooled thread: it cannot return to the host's namespaces.
        std::thread::Builder::new()
            .name("launch".to_owned())
            .spawn(move || {
                let (result, helper) = match inner.start(&spec, network.as_ref(), processes) {
                    Ok(Started { mounts, helper }) => {
                        inner.keep_mounts(spec.id, mounts);
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

#[async_trait]
impl Sandboxes for HostDriver {
    async fn create(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let spec = spec.clone();
        self.blocking(move |inner| {
            let paths = Paths::of(&inner.settings, &spec.id);
            fs::create_dir_all(&paths.data).at(DriverStep::MakeDiskDirectory)?;
            if let Some(snapshot) = &spec.processes_from {
                inner.share_processes(&spec, snapshot, &paths.memory())?;
            }
            disk::ensure(&inner.settings, &paths, spec.disk_mb, new_disk(&spec))
        })
        .await
    }

    async fn start(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        self.launch(spec, network, Processes::New).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.require(&id, Population::Running, "pause")?;
            if let Err(error) = hoarders::end_before_pause(inner, &id) {
                tracing::error!(%id, %error, "cannot look for memory that is charged to nobody before a pause");
            }
            let frozen = inner.cgroups.freeze(id.as_str(), FREEZE_TIMEOUT);
            frozen.at(DriverStep::Freeze)
        })
        .await
    }

    async fn resume(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            inner.require(&id, Population::Frozen, "resume")?;
            inner.cgroups.thaw(id.as_str()).at(DriverStep::Thaw)
        })
        .await
    }

    async fn page_out(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.page_out(&id)).await
    }

    async fn limit(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let spec = spec.clone();
        self.blocking(move |inner| {
            inner
                .cgroups
                .limit(spec.id.as_str(), spec.limits, &placement::cpus_of(&spec))
                .at(DriverStep::SetLimits)?;
            let paths = Paths::of(&inner.settings, &spec.id);
            match inner.backends.get(&isolation_of(&paths)) {
                Some(backend) => backend.show_limits(&inner.cgroups, &spec, &paths),
                None => Ok(()),
            }
        })
        .await
    }

    async fn kill(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.kill(&id)).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.stop(&id)).await
    }

    async fn destroy(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            // Deleting the disk first saves its last writes to the host's disk.
            let data = Paths::of(&inner.settings, &id).data;
            let removed = remove_tree(&data).at(DriverStep::RemoveDisk);
            // Ends the processes even if the disk cannot be removed.
            inner.stop(&id)?;
            removed
        })
        .await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Box<dyn ByteStream>, DriverError> {
        let paths = Paths::of(&self.inner.settings, id);
        if isolation_of(&paths) == Isolation::Container {
            return link::connect(&paths).await.at(DriverStep::ConnectAgent);
        }
        let listener = if paths.link_dir().exists() {
            Listener::of_earlier_version(&paths).at(DriverStep::ConnectAgent)?
        } else {
            let (name, of) = (id.clone(), paths.clone());
            let listen = move |inner: &Inner| {
                control_link::listen(&inner.cgroups, name.as_str(), &of).at(DriverStep::ConnectAgent)
            };
            let (listener, process) = self.blocking(listen).await?;
            Listener::Tcp(tokio::net::TcpListener::from_std(listener).at(DriverStep::ConnectAgent)?, process)
        };
        let is_empty = || matches!(self.inner.cgroups.population(id.as_str()), Ok(Population::Empty));
        link::accept(listener, &paths, is_empty).await.at(DriverStep::ConnectAgent)
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Presence, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.presence(&id)).await
    }

    async fn last_seen_running_ms(&self, id: &SandboxId) -> Result<Option<u64>, DriverError> {
        // Asked after a restart of the daemon: what it held open is closed, and the disk was not written after the last process ended.
        let disk = Paths::of(&self.inner.settings, id).disk();
        self.blocking(move |_| {
            let written = fs::metadata(&disk).and_then(|metadata| metadata.modified()).ok();
            let since_epoch = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
            Ok(since_epoch.and_then(|duration| u64::try_from(duration.as_millis()).ok()))
        })
        .await
    }

    async fn isolation(&self, id: &SandboxId) -> Option<Isolation> {
        let paths = Paths::of(&self.inner.settings, id);
        paths.run.exists().then(|| isolation_of(&paths))
    }

    async fn resource_use(&self, id: &SandboxId) -> Result<Option<ResourceUse>, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let Some((cpu_us, memory, memory_cache)) = inner.cgroups.usage(id.as_str()) else {
                return Ok(None);
            };
            let disk = Paths::of(&inner.settings, &id).disk();
            let disk = fs::metadata(disk).map_or(0, |metadata| metadata.blocks().saturating_mul(512));
            Ok(Some(ResourceUse { cpu_us, memory, memory_cache, disk }))
        })
        .await
    }

    async fn memory_kills(&self, id: &SandboxId) -> Option<MemoryKills> {
        let id = id.clone();
        self.blocking(move |inner| Ok(inner.cgroups.memory_kills(id.as_str()))).await.ok().flatten()
    }

    async fn end_hoarders(&self) -> Result<Vec<(SandboxId, Hoard)>, DriverError> {
        self.blocking(move |inner| hoarders::end(inner).at(DriverStep::FindHoarders)).await
    }

    async fn list(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(|inner| {
            let mut ids = BTreeSet::new();
            for dir in
                [sandboxes_dir(&inner.settings), bundles_dir(&inner.settings), runtime_root(&inner.settings)]
            {
                ids.extend(ids_below::<SandboxId>(&dir).at(DriverStep::ListSandboxes)?);
            }
            let names = inner.cgroups.names().at(DriverStep::ListSandboxes)?;
            ids.extend(names.iter().filter_map(|name| name.parse().ok()));
            Ok(ids.into_iter().collect())
        })
        .await
    }
}

#[async_trait]
impl Disks for HostDriver {
    async fn disk_use(&self, id: &SandboxId) -> Result<DiskUse, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let paths = Paths::of(&inner.settings, &id);
            let allocated =
                fs::metadata(paths.disk()).map_or(0, |metadata| metadata.blocks().saturating_mul(512));
            let stored = stored_processes::size(&paths.memory()).unwrap_or(0);
            Ok(DiskUse { allocated, dirty: inner.cgroups.dirty_bytes(id.as_str()), stored })
        })
        .await
    }

    async fn with_replaced_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(move |inner| replaced_disks::find(inner).at(DriverStep::CompareDisks)).await
    }

    async fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(move |_| read_only_disks::find().at(DriverStep::FindReadOnlyDisks)).await
    }

    async fn has_read_only_disk(&self, id: &SandboxId) -> Result<bool, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| match inner.disk_device(&id).at(DriverStep::ReadDiskState)? {
            Some(device) => read_only_disks::is_read_only(device).at(DriverStep::ReadDiskState),
            None => Ok(false),
        })
        .await
    }

    async fn prepare_disk(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let spec = spec.clone();
        self.blocking(move |inner| {
            let paths = Paths::of(&inner.settings, &spec.id);
            let unfinished = paths.unfinished_disk();
            match &spec.processes_from {
                Some(snapshot) => inner.share_processes(&spec, snapshot, &paths.prepared_memory())?,
                None => remove_tree(&paths.prepared_memory()).at(DriverStep::RemoveUnusedProcesses)?,
            }
            disk::create(&inner.settings, &unfinished, spec.disk_mb, new_disk(&spec))?;
            // The record that makes it the sandbox's disk survives a power failure.
            fs::File::open(&unfinished)
                .and_then(|file| file.sync_all())
                .and_then(|()| fs::rename(&unfinished, paths.prepared_disk()))
                .and_then(|()| base::sync_dir(&paths.data))
                .at(DriverStep::SaveDisk)
        })
        .await
    }

    async fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| {
            let paths = Paths::of(&inner.settings, &id);
            if !paths.prepared_disk().exists() && !paths.prepared_memory().exists() {
                return Ok(());
            }
            inner.require(&id, Population::Empty, "replace the disk of")?;
            inner.unmount_disk(&id);
            if paths.prepared_disk().exists() {
                // Stored processes belong to the old disk.
                inner.discard_memory(&id)?;
            }
            let renamed = match fs::rename(paths.prepared_disk(), paths.disk()) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                renamed => renamed,
            };
            renamed
                .and_then(|()| stored_processes::adopt_prepared(&paths))
                .and_then(|()| base::sync_dir(&paths.data))
                .at(DriverStep::ReplaceDisk)
        })
        .await
    }

    async fn discard_prepared_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        let paths = Paths::of(&self.inner.settings, id);
        self.blocking(move |_| {
            for file in [paths.prepared_disk(), paths.unfinished_disk()] {
                remove_if_exists(&file).at(DriverStep::RemoveUnusedDisk)?;
            }
            remove_tree(&paths.prepared_memory()).at(DriverStep::RemoveUnusedProcesses)
        })
        .await
    }

    async fn copy_disk(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Box<dyn DiskCopy>, DriverError> {
        Ok(Box::new(HostCopy::begin(&self.inner, id, snapshot).await?))
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        let dir = snapshots_dir(&self.inner.settings).join(snapshot.as_str());
        self.blocking(move |inner| {
            inner.snapshots.close(&snapshot::image(&dir));
            let removed = transfer::remove_processes(&dir).and_then(|()| remove_tree(&dir));
            removed.at(DriverStep::RemoveSnapshot)
        })
        .await
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        self.blocking(|inner| ids_below(&snapshots_dir(&inner.settings)).at(DriverStep::ListSnapshots)).await
    }

    fn snapshot_layer(&self, snapshot: &SnapshotId) -> PathBuf {
        snapshot::image(&snapshots_dir(&self.inner.settings).join(snapshot.as_str()))
    }

    async fn snapshot_files(
        &self,
        snapshot: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<Vec<SnapshotFile>, DriverError> {
        let dir = snapshots_dir(&self.inner.settings).join(snapshot.as_str());
        self.blocking(move |inner| {
            transfer::files(&inner.settings, &dir, scope).at(DriverStep::ListSnapshotFiles)
        })
        .await
    }

    async fn snapshot_bytes(&self, snapshot: &SnapshotId) -> Result<u64, DriverError> {
        let dir = snapshots_dir(&self.inner.settings).join(snapshot.as_str());
        self.blocking(move |_| transfer::size(&dir).at(DriverStep::MeasureSnapshot)).await
    }

    async fn receive_snapshot(
        &self,
        snapshot: &SnapshotId,
        names: Vec<String>,
    ) -> Result<Vec<PathBuf>, DriverError> {
        let dir = snapshots_dir(&self.inner.settings).join(snapshot.as_str());
        self.blocking(move |_| transfer::receive(&dir, &names).at(DriverStep::ReceiveSnapshot)).await
    }

    async fn complete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        let dir = snapshots_dir(&self.inner.settings).join(snapshot.as_str());
        self.blocking(move |inner| transfer::complete(&inner.settings, &dir).at(DriverStep::CompleteSnapshot))
            .await
    }
}

#[async_trait]
impl StoredProcesses for HostDriver {
    fn can_store_processes(&self, isolation: Isolation) -> bool {
        self.inner.backends.get(&isolation).is_some_and(|backend| backend.release().is_some())
    }

    async fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.hibernate(&id)).await
    }

    async fn wake(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        self.launch(spec, network, Processes::Stored).await
    }

    async fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError> {
        let id = id.clone();
        self.blocking(move |inner| inner.discard_memory(&id)).await
    }

    async fn discard_snapshot_processes(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        let dir = snapshots_dir(&self.inner.settings).join(snapshot.as_str());
        self.blocking(move |_| transfer::remove_processes(&dir).at(DriverStep::RemoveSnapshotProcesses)).await
    }
}
