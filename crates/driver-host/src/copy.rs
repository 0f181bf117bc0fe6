//! Takes a snapshot of a sandbox: runs the steps of `snapshot` on threads that may block, and freezes the processes in between.

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::{SandboxId, SnapshotId};
use async_trait::async_trait;
use base::blocking;
use driver::{AtStep, DiskCopy, DriverError, DriverStep, Presence, SnapshotDisk, SnapshotScope};

use crate::agents::can_be_copied;
use crate::backend::Standstill;
use crate::inner::{FREEZE_TIMEOUT, Inner};
use crate::paths::{Paths, snapshots_dir};
use crate::snapshot::{ImageCopy, memory};
use crate::stored_processes;

/// A copy of the disk of a sandbox in progress.
pub struct HostCopy {
    inner: Arc<Inner>,
    id: SandboxId,
    /// `None` after a failed step.
    copy: Option<ImageCopy>,
}

impl HostCopy {
    pub async fn begin(
        inner: &Arc<Inner>,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Self, DriverError> {
        let dir = snapshots_dir(&inner.settings).join(snapshot.as_str());
        let (host, name) = (Arc::clone(inner), id.clone());
        let copy = blocking(move || {
            let presence = host.presence(&name)?;
            if presence == Presence::Absent {
                return Err(DriverError::InvalidState { id: name, presence, action: "copy the disk of" });
            }
            let mounted = host.mounted_disk(&name).at(DriverStep::CopyDisk)?;
            ImageCopy::begin(&Paths::of(&host.settings, &name).disk(), dir, mounted).at(DriverStep::CopyDisk)
        });
        Ok(Self { inner: Arc::clone(inner), id: id.clone(), copy: Some(copy.await?) })
    }

    fn take(&mut self) -> Result<ImageCopy, DriverError> {
        self.copy.take().ok_or_else(|| DriverError::failed(DriverStep::CopyDisk, "an earlier step failed"))
    }
}

#[async_trait]
impl DiskCopy for HostCopy {
    async fn capture(&mut self, scope: SnapshotScope) -> Result<Duration, DriverError> {
        let (host, id, mut copy) = (Arc::clone(&self.inner), self.id.clone(), self.take()?);
        let (copy, frozen) = blocking(move || {
            let frozen = capture(&host, &id, &mut copy, scope)?;
            Ok::<_, DriverError>((copy, frozen))
        })
        .await?;
        self.copy = Some(copy);
        Ok(frozen)
    }

    async fn finish(mut self: Box<Self>) -> Result<SnapshotDisk, DriverError> {
        let copy = self.take()?;
        blocking(move || copy.finish()).await
    }
}

fn capture(
    host: &Inner,
    id: &SandboxId,
    copy: &mut ImageCopy,
    scope: SnapshotScope,
) -> Result<Duration, DriverError> {
    let presence = host.presence(id)?;
    let refused = |action| Err(DriverError::InvalidState { id: id.clone(), presence, action });
    let paths = Paths::of(&host.settings, id);
    let disk = paths.disk();
    let memory = memory(&copy.dir);
    let mounted = host.mounted_disk(id).at(DriverStep::CopyDisk)?;
    match (scope, presence) {
        (_, Presence::Absent) => return refused("copy the disk of"),
        (SnapshotScope::Processes, Presence::Stopped | Presence::Paused) => {
            return refused("copy the processes of");
        }
        (SnapshotScope::Processes, Presence::Hibernated) => {
            if !stored_processes::agent_name(&paths.memory()).is_ok_and(|name| can_be_copied(&name)) {
                let reason = "an earlier version of the service has started it".to_owned();
                return Err(DriverError::NotStorable { reason });
            }
            stored_processes::share(&paths.memory(), &memory).at(DriverStep::CopyDisk)?;
        }
        _ => {}
    }
    if presence != Presence::Running {
        return copy.capture(&disk, mounted.as_ref()).map(|()| Duration::ZERO).at(DriverStep::CopyDisk);
    }
    copy.approach(mounted.as_ref()).at(DriverStep::CopyDisk)?;
    let begin = Instant::now();
    let frozen: Box<dyn Standstill + '_> = match scope {
        SnapshotScope::Disk => Box::new(Frozen::new(host, id)?),
        // The backend writes what it caches to the disk before it stores the processes.
        SnapshotScope::Processes => host.copy_processes(id, &memory)?,
    };
    let captured = copy.capture(&disk, mounted.as_ref()).at(DriverStep::CopyDisk);
    let thawed = frozen.end();
    captured.and(thawed).map(|()| begin.elapsed())
}

/// Frozen processes, thawed at the latest when it is dropped. A daemon that dies meanwhile leaves them frozen; the next one thaws them,
/// because the record says that they run.
struct Frozen<'a> {
    host: &'a Inner,
    id: &'a SandboxId,
    is_thawed: bool,
}

impl<'a> Frozen<'a> {
    fn new(host: &'a Inner, id: &'a SandboxId) -> Result<Self, DriverError> {
        // Also thaws processes of which only some were frozen.
        let frozen = Self { host, id, is_thawed: false };
        let result = host.cgroups.freeze(id.as_str(), FREEZE_TIMEOUT);
        result.map(|()| frozen).at(DriverStep::Freeze)
    }
}

impl Standstill for Frozen<'_> {
    fn end(mut self: Box<Self>) -> Result<(), DriverError> {
        self.is_thawed = true;
        let thawed = self.host.cgroups.thaw(self.id.as_str());
        thawed.at(DriverStep::Thaw)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        if !self.is_thawed
            && let Err(error) = self.host.cgroups.thaw(self.id.as_str())
        {
            tracing::error!(id = %self.id, %error, "could not thaw a sandbox after a failed copy of its disk");
        }
    }
}
