//! Disks of fake sandboxes, and their snapshots: whole copies of disks, and what matters of their processes.

mod transfer;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;
use base::IgnorePoison;

use super::agent::{Guest, GuestCopy};
use super::files::Disk;
use super::{DriverOp, FakeDriver, Host, STORED_BYTES, Sandbox, State, invalid_state};
use crate::{
    AtStep, DiskCopy, DiskUse, Disks, DriverError, DriverStep, Presence, SandboxSpec, SnapshotDisk,
    SnapshotFile, SnapshotScope,
};

pub(super) use transfer::Exports;

/// What a disk occupies, unless a test sets it.
const BYTES: u64 = 1 << 20;

fn layer(snapshot: &SnapshotId) -> PathBuf {
    Path::new("/fake").join(format!("{snapshot}.img"))
}

/// The disk of a new sandbox.
pub(super) fn new_disk(state: &State, spec: &SandboxSpec) -> Arc<Mutex<Disk>> {
    let from = spec.disk_from.as_ref().or(spec.layers.first());
    let found = from.and_then(|from| state.snapshots.iter().find(|(id, _)| layer(id) == **from));
    let disk = found
        .and_then(|(_, (_, content))| content.as_ref().map(|content| content.disk.clone()))
        .unwrap_or_default();
    Arc::new(Mutex::new(disk))
}

/// What a snapshot contains.
#[derive(Clone)]
pub(super) struct Content {
    disk: Disk,
    processes: Option<GuestCopy>,
}

impl Content {
    /// What another host gets: the disk, then the processes.
    pub(super) fn of_disk(&self) -> Self {
        Self { disk: self.disk.clone(), processes: None }
    }

    pub(super) fn has_processes(&self) -> bool {
        self.processes.is_some()
    }

    pub(super) fn take_processes(&mut self, from: &Self) {
        self.processes.clone_from(&from.processes);
    }

    pub(super) fn discard_processes(&mut self) {
        self.processes = None;
    }
}

/// The stored processes of a new sandbox, on its disk.
pub(super) fn new_memory(state: &State, spec: &SandboxSpec, disk: &Arc<Mutex<Disk>>) -> Option<Guest> {
    let content = state.snapshots.get(spec.processes_from.as_ref()?)?.1.as_ref()?;
    Some(content.processes.as_ref()?.continued(Arc::clone(disk)).store())
}

/// A copy in progress.
struct FakeCopy {
    host: Arc<Host>,
    id: SandboxId,
    snapshot: SnapshotId,
}

impl FakeCopy {
    async fn begin(host: &Arc<Host>, id: &SandboxId, snapshot: &SnapshotId) -> Result<Self, DriverError> {
        let work = |state: &mut State| {
            if state.presence(id) == Presence::Absent {
                return invalid_state(id, Presence::Absent, "copy the disk of");
            }
            state.snapshots.insert(snapshot.clone(), (0, None));
            Ok(())
        };
        host.call(DriverOp::CopyDisk, id, work).await?;
        Ok(Self { host: Arc::clone(host), id: id.clone(), snapshot: snapshot.clone() })
    }
}

#[async_trait]
impl DiskCopy for FakeCopy {
    async fn capture(&mut self, scope: SnapshotScope) -> Result<Duration, DriverError> {
        let (id, snapshot) = (&self.id, &self.snapshot);
        let work = |state: &mut State| {
            let Some(sandbox) = state.sandboxes.get(id) else {
                return invalid_state(id, Presence::Absent, "copy the disk of");
            };
            let processes = match (scope, sandbox.presence()) {
                (SnapshotScope::Disk, _) => None,
                (SnapshotScope::Processes, _) if sandbox.isolation == Isolation::Container => {
                    return Err(DriverError::failed(DriverStep::CopyProcesses, "a container cannot"));
                }
                (SnapshotScope::Processes, Presence::Running) => sandbox.guest.as_ref().map(Guest::copy),
                (SnapshotScope::Processes, Presence::Hibernated) => sandbox.memory.as_ref().map(Guest::copy),
                (SnapshotScope::Processes, presence) => {
                    return invalid_state(id, presence, "copy the processes of");
                }
            };
            let disk = sandbox.disk.lock().ignore_poison().clone();
            let bytes = state.disk_bytes.unwrap_or(BYTES);
            state.snapshots.insert(snapshot.clone(), (bytes, Some(Content { disk, processes })));
            Ok(Duration::from_millis(1))
        };
        self.host.call(DriverOp::Capture, id, work).await
    }

    async fn finish(self: Box<Self>) -> Result<SnapshotDisk, DriverError> {
        let bytes = self.host.state().snapshots.get(&self.snapshot).map_or(BYTES, |(bytes, _)| *bytes);
        Ok(SnapshotDisk { layer: layer(&self.snapshot), bytes })
    }
}

#[async_trait]
impl Disks for FakeDriver {
    async fn disk_use(&self, id: &SandboxId) -> Result<DiskUse, DriverError> {
        let state = self.host.state();
        let is_stored = state.sandboxes.get(id).is_some_and(|sandbox| sandbox.memory.is_some());
        let stored = if is_stored { STORED_BYTES } else { 0 };
        Ok(DiskUse { allocated: state.disk_bytes.unwrap_or_default(), stored, ..DiskUse::default() })
    }

    async fn with_replaced_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        Ok(self.host.state().sandboxes_where(Sandbox::has_replaced_disk))
    }

    async fn has_disk(&self, id: &SandboxId) -> Result<bool, DriverError> {
        Ok(self.host.state().sandboxes.contains_key(id))
    }

    async fn with_read_only_disks(&self) -> Result<Vec<SandboxId>, DriverError> {
        self.host.state().with_read_only_disks()
    }

    async fn prepare_disk(&self, spec: &SandboxSpec) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let disk = new_disk(state, spec);
            let memory = new_memory(state, spec, &disk);
            state.prepared_disks.insert(spec.id.clone(), (disk, memory));
            Ok(())
        };
        self.host.call(DriverOp::PrepareDisk, &spec.id, work).await
    }

    async fn adopt_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        let work = |state: &mut State| {
            let presence = state.presence(id);
            if state.prepared_disks.contains_key(id)
                && !matches!(presence, Presence::Stopped | Presence::Hibernated)
            {
                return invalid_state(id, presence, "replace the disk of");
            }
            if let (Some((disk, memory)), Some(sandbox)) =
                (state.prepared_disks.remove(id), state.sandboxes.get_mut(id))
            {
                (sandbox.disk, sandbox.memory, sandbox.is_memory_used) = (disk, memory, false);
            }
            Ok(())
        };
        self.host.call(DriverOp::AdoptDisk, id, work).await
    }

    async fn discard_prepared_disk(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.host.state().prepared_disks.remove(id);
        Ok(())
    }

    async fn copy_disk(
        &self,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Box<dyn DiskCopy>, DriverError> {
        Ok(Box::new(FakeCopy::begin(&self.host, id, snapshot).await?))
    }

    async fn remove_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        self.host.state().snapshots.remove(snapshot);
        Ok(())
    }

    async fn list_snapshots(&self) -> Result<Vec<SnapshotId>, DriverError> {
        Ok(self.host.state().snapshots.keys().cloned().collect())
    }

    fn snapshot_layer(&self, snapshot: &SnapshotId) -> PathBuf {
        layer(snapshot)
    }

    async fn snapshot_files(
        &self,
        snapshot: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<Vec<SnapshotFile>, DriverError> {
        transfer::files(&self.host, snapshot, scope).at(DriverStep::ReadSnapshot)
    }

    async fn snapshot_bytes(&self, snapshot: &SnapshotId) -> Result<u64, DriverError> {
        Ok(self.host.state().snapshots.get(snapshot).map_or(0, |(bytes, _)| *bytes))
    }

    async fn receive_snapshot(
        &self,
        snapshot: &SnapshotId,
        names: Vec<String>,
    ) -> Result<Vec<PathBuf>, DriverError> {
        transfer::clear(&self.host, snapshot).at(DriverStep::ReceiveSnapshot)?;
        let paths = names.iter().map(|name| transfer::path(&self.host, snapshot, name, "new"));
        paths.collect::<io::Result<_>>().at(DriverStep::ReceiveSnapshot)
    }

    async fn complete_snapshot(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        transfer::complete(&self.host, snapshot).at(DriverStep::FinishSnapshot)
    }
}
