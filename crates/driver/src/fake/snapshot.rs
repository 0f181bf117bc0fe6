//! Snapshots of fake sandboxes: whole copies of their disks, and what matters of their processes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;
use base::IgnorePoison;

use super::agent::{Guest, GuestCopy};
use super::disk::Disk;
use super::{DriverOp, Host, State};
use crate::{DiskCopy, DriverError, Presence, SandboxSpec, SnapshotDisk, SnapshotScope};

/// What a disk occupies, unless a test sets it.
pub(super) const BYTES: u64 = 1 << 20;

pub(super) fn layer(snapshot: &SnapshotId) -> PathBuf {
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
pub(super) struct FakeCopy {
    host: Arc<Host>,
    id: SandboxId,
    snapshot: SnapshotId,
}

impl FakeCopy {
    pub(super) async fn begin(
        host: &Arc<Host>,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Self, DriverError> {
        let work = |state: &mut State| {
            if state.presence(id) == Presence::Absent {
                return super::invalid_state(id, Presence::Absent, "copy the disk of");
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
                return super::invalid_state(id, Presence::Absent, "copy the disk of");
            };
            let processes = match (scope, sandbox.presence()) {
                (SnapshotScope::Disk, _) => None,
                (SnapshotScope::Processes, _) if sandbox.isolation == Isolation::Container => {
                    return Err(DriverError::failed("copy the processes", "a container cannot"));
                }
                (SnapshotScope::Processes, Presence::Running) => sandbox.guest.as_ref().map(Guest::copy),
                (SnapshotScope::Processes, Presence::Hibernated) => sandbox.memory.as_ref().map(Guest::copy),
                (SnapshotScope::Processes, presence) => {
                    return super::invalid_state(id, presence, "copy the processes of");
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
