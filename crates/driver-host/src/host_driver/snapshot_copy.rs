//! Copies the disk of a sandbox for a snapshot: freezes the processes between the steps of [`ImageCopy`].

use std::time::{Duration, Instant};

use api::{SandboxId, SnapshotId};
use async_trait::async_trait;
use driver::{AtStep, DiskCopy, DriverError, DriverStep, Presence, SnapshotDisk, SnapshotScope};

use super::{HostDriver, HostState};
use crate::agent::copies::can_be_copied;
use crate::backend::Standstill;
use crate::snapshot::ImageCopy;
use crate::stored_processes;

/// A copy of the disk of a sandbox in progress.
pub struct HostCopy {
    driver: HostDriver,
    id: SandboxId,
    /// `None` after a failed step.
    copy: Option<ImageCopy>,
}

impl HostCopy {
    pub(super) async fn begin(
        driver: &HostDriver,
        id: &SandboxId,
        snapshot: &SnapshotId,
    ) -> Result<Self, DriverError> {
        let dir = driver.host.snapshot(snapshot);
        let begin = |host: &HostState, id: &SandboxId| {
            let presence = host.presence(id)?;
            if presence == Presence::Absent {
                let (id, action) = (id.clone(), "copy the disk of");
                return Err(DriverError::InvalidState { id, presence, action });
            }
            let mounted = host.disks.find(id).at(DriverStep::CopyDisk)?;
            ImageCopy::begin(&host.paths(id).disk(), dir, mounted).at(DriverStep::CopyDisk)
        };
        let copy = driver.run(id, begin).await?;
        Ok(Self { driver: driver.clone(), id: id.clone(), copy: Some(copy) })
    }

    fn take(&mut self) -> Result<ImageCopy, DriverError> {
        self.copy.take().ok_or_else(|| DriverError::failed(DriverStep::CopyDisk, "an earlier step failed"))
    }
}

#[async_trait]
impl DiskCopy for HostCopy {
    async fn capture(&mut self, scope: SnapshotScope) -> Result<Duration, DriverError> {
        let mut copy = self.take()?;
        let capture = move |host: &HostState, id: &SandboxId| {
            let frozen = host.capture(id, &mut copy, scope)?;
            Ok((copy, frozen))
        };
        let (copy, frozen) = self.driver.run(&self.id, capture).await?;
        self.copy = Some(copy);
        Ok(frozen)
    }

    async fn finish(mut self: Box<Self>) -> Result<SnapshotDisk, DriverError> {
        let copy = self.take()?;
        base::blocking(move || copy.finish()).await
    }
}

impl HostState {
    /// Completes a copy while nothing changes the disk. Returns how long the processes were frozen.
    fn capture(
        &self,
        id: &SandboxId,
        copy: &mut ImageCopy,
        scope: SnapshotScope,
    ) -> Result<Duration, DriverError> {
        let presence = self.presence(id)?;
        let refused = |action| Err(DriverError::InvalidState { id: id.clone(), presence, action });
        let paths = self.paths(id);
        let disk = paths.disk();
        let memory = copy.dir.memory();
        let mounted = self.disks.find(id).at(DriverStep::CopyDisk)?;
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
            SnapshotScope::Disk => Box::new(Frozen::new(self, id)?),
            // The backend writes what it caches to the disk before it stores the processes.
            SnapshotScope::Processes => self.copy_processes(id, &memory)?,
        };
        let captured = copy.capture(&disk, mounted.as_ref()).at(DriverStep::CopyDisk);
        let thawed = frozen.end();
        captured.and(thawed).map(|()| begin.elapsed())
    }
}

/// Frozen processes, thawed at the latest when it is dropped. A daemon that dies meanwhile leaves them frozen; the next one thaws them,
/// because the record says that they run.
struct Frozen<'a> {
    host: &'a HostState,
    id: &'a SandboxId,
    is_thawed: bool,
}

impl<'a> Frozen<'a> {
    fn new(host: &'a HostState, id: &'a SandboxId) -> Result<Self, DriverError> {
        // Also thaws processes of which only some were frozen.
        let frozen = Self { host, id, is_thawed: false };
        host.freeze(id).map(|()| frozen)
    }
}

impl Standstill for Frozen<'_> {
    fn end(mut self: Box<Self>) -> Result<(), DriverError> {
        self.is_thawed = true;
        self.host.thaw(self.id)
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
