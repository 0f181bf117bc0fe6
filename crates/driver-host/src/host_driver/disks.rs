//! The disks of sandboxes, and snapshots.

use std::fs::{self, File};
use std::path::PathBuf;

use api::{SandboxId, SnapshotId};
use async_trait::async_trait;
use driver::{
    AtStep, DiskCopy, DiskUse, Disks, DriverError, DriverStep, SandboxSpec, SnapshotFile, SnapshotScope,
};

use super::snapshot_copy::HostCopy;
use super::{HostDriver, HostState};
use crate::cgroup::Population;
use crate::disk::{self, Content, read_only, replaced};
use crate::paths::{disk_bytes_in, ids_below, snapshots_dir};
use crate::removal::{remove_if_exists, remove_tree, rename_if_exists};
use crate::stored_processes;

#[async_trait]
impl Disks for HostDriver {
    async fn disk_use(&self, id: &SandboxId) -> Result<DiskUse, DriverError> {
        self.run(id, |host, id| {
            let stored = stored_processes::size(&host.paths(id).memory()).unwrap_or(0);
            let dirty = host.cgroups.dirty_bytes(id.as_str());
            Ok(DiskUse { allocated: disk_bytes_in(&host.settings.data_dir, id), dirty, stored })
        })
        .await
    }

    async fn with_replaced_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(|host| replaced::find(&host.settings, &host.cgroups).at(DriverStep::CompareDisks)).await
    }

    async fn has_disk(&self, id: &SandboxId) -> Result<bool, DriverError> {
        self.run(id, |host, id| host.paths(id).disk().try_exists().at(DriverStep::FindDisk)).await
    }

    async fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.blocking(|_| read_only::find().at(DriverStep::FindReadOnlyDisks)).await
    }

    async fn has_read_only_disk(&self, id: &SandboxId) -> Result<bool, DriverError> {
        self.run(id, |host, id| {
            let device = host.disks.device(id).at(DriverStep::FindReadOnlyDisks)?;
            device.map_or(Ok(false), read_only::is_read_only).at(DriverStep::FindReadOnlyDisks)
        })
        .await
    }

    async fn prepare_disk(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        self.run(spec, |host, spec| {
            let paths = host.paths(&spec.id);
            match &spec.processes_from {
                Some(snapshot) => host.share_processes(spec, snapshot, &paths.prepared_memory())?,
                None => remove_tree(&paths.prepared_memory()).at(DriverStep::RemoveStoredProcesses)?,
            }
            let unfinished = paths.unfinished_disk();
            disk::create(&host.settings, &unfinished, spec.disk_mb, Content::of(spec))?;
            // The record that makes it the sandbox's disk survives a power failure.
            File::open(&unfinished)
                .and_then(|file| file.sync_all())
                .and_then(|()| fs::rename(&unfinished, paths.prepared_disk()))
                .and_then(|()| base::sync_dir(&paths.data))
                .at(DriverStep::SaveDisk)
        })
        .await
    }

    async fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, HostState::adopt_disk).await
    }

    async fn discard_prepared_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, |host, id| {
            let paths = host.paths(id);
            for file in [paths.prepared_disk(), paths.unfinished_disk()] {
                remove_if_exists(&file).at(DriverStep::RemoveDisk)?;
            }
            remove_tree(&paths.prepared_memory()).at(DriverStep::RemoveStoredProcesses)
        })
        .await
    }

    async fn copy_disk(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Box<dyn DiskCopy>, DriverError> {
        Ok(Box::new(HostCopy::begin(self, id, snapshot).await?))
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        self.run(snapshot, |host, id| {
            let snapshot = host.snapshot(id);
            host.snapshots.close(&snapshot.image());
            snapshot.remove().at(DriverStep::RemoveSnapshot)
        })
        .await
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        self.blocking(|host| ids_below(&snapshots_dir(&host.settings)).at(DriverStep::ListSnapshots)).await
    }

    fn snapshot_layer(&self, snapshot: &SnapshotId) -> PathBuf {
        self.host.snapshot(snapshot).image()
    }

    async fn snapshot_files(
        &self,
        snapshot: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<Vec<SnapshotFile>, DriverError> {
        self.run(snapshot, move |host, id| {
            host.snapshot(id).files(&host.settings, scope).at(DriverStep::ReadSnapshot)
        })
        .await
    }

    async fn snapshot_bytes(&self, snapshot: &SnapshotId) -> Result<u64, DriverError> {
        self.run(snapshot, |host, id| host.snapshot(id).size().at(DriverStep::ReadSnapshot)).await
    }

    async fn receive_snapshot(
        &self,
        snapshot: &SnapshotId,
        names: Vec<String>,
    ) -> Result<Vec<PathBuf>, DriverError> {
        self.run(snapshot, move |host, id| host.snapshot(id).receive(&names).at(DriverStep::ReceiveSnapshot))
            .await
    }

    async fn complete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        self.run(snapshot, |host, id| {
            host.snapshot(id).complete(&host.settings).at(DriverStep::FinishSnapshot)
        })
        .await
    }
}

impl HostState {
    fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        let paths = self.paths(id);
        if !paths.prepared_disk().exists() && !paths.prepared_memory().exists() {
            return Ok(());
        }
        self.require(id, Population::Empty, "replace the disk of")?;
        self.disks.unmount(id);
        if paths.prepared_disk().exists() {
            // Stored processes belong to the old disk.
            self.discard_memory(id)?;
        }
        rename_if_exists(&paths.prepared_disk(), &paths.disk())
            .and_then(|()| stored_processes::adopt_prepared(&paths))
            .and_then(|()| base::sync_dir(&paths.data))
            .at(DriverStep::ReplaceDisk)
    }
}
