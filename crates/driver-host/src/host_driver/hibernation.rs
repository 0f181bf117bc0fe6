//! Stores the processes of sandboxes on the disk.
//!
//! The processes stand still while a program stores them. It gives the directory its final name when everything is on the disk, or lets
//! the processes go on if they cannot be stored, also when the daemon is killed meanwhile. The next daemon waits for it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use api::{Isolation, SandboxId, SnapshotId};
use async_trait::async_trait;
use driver::{AtStep, DriverError, DriverStep, NetworkHook, Presence, SandboxSpec, StoredProcesses};
use rustix::io::Errno;

use super::start::Processes;
use super::{HostDriver, HostState};
use crate::backend::{Backend, Hibernation, ProcessCopy, Standstill};
use crate::cgroup::Population;
use crate::paths::{Paths, isolation_of};
use crate::removal::remove_tree;
use crate::{loopdev, stored_processes};

/// Space on the disk that storing processes must leave.
const SPARE_BYTES: u64 = 64 << 20;

/// Space on the disk that is about to be used. A part of it may be written already, so it errs on the safe side.
struct SpaceClaim<'a> {
    claimed: &'a AtomicU64,
    bytes: u64,
}

impl Drop for SpaceClaim<'_> {
    fn drop(&mut self) {
        self.claimed.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Removes the lock of a program that has ended.
struct Unlock(PathBuf);

impl Drop for Unlock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Processes that stand still after they were copied.
struct Copied {
    standstill: Box<dyn Standstill>,
    _unlock: Unlock,
}

impl Standstill for Copied {
    fn end(self: Box<Self>) -> Result<(), DriverError> {
        self.standstill.end()
    }
}

#[async_trait]
impl StoredProcesses for HostDriver {
    fn can_store_processes(&self, isolation: Isolation) -> bool {
        self.host.backends.get(&isolation).is_some_and(|backend| backend.release().is_some())
    }

    async fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError> {
        self.run(id, HostState::hibernate).await
    }

    async fn wake(&self, spec: &SandboxSpec, network: Option<NetworkHook>) -> Result<(), DriverError> {
        self.launch(spec, network, Processes::Stored).await
    }

    async fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError> {
        self.run(id, HostState::discard_memory).await
    }

    async fn discard_snapshot_processes(&self, snapshot: &SnapshotId) -> Result<(), DriverError> {
        self.run(snapshot, |host, id| {
            host.snapshot(id).remove_processes().at(DriverStep::RemoveStoredProcesses)
        })
        .await
    }
}

impl HostState {
    /// Stores the processes of a sandbox and ends them.
    fn hibernate(&self, id: &SandboxId) -> Result<u64, DriverError> {
        let paths = self.paths(id);
        let population = self.cgroups.population(id.as_str()).at(DriverStep::PrepareToStore)?;
        let presence = match population {
            Population::Running => Presence::Running,
            Population::Frozen => Presence::Paused,
            Population::Empty => return Err(self.refusal(id, "hibernate")),
        };
        let (backend, release, _claim) = self.prepare_to_store(id, &paths)?;
        let lock = stored_processes::prepare(&paths, &release).at(DriverStep::PrepareToStore)?;
        if presence == Presence::Paused {
            self.cgroups.thaw(id.as_str()).at(DriverStep::PrepareToStore)?;
        }
        let hibernation =
            Hibernation { unfinished: &paths.unfinished_memory(), complete: &paths.memory(), lock };
        let stored = backend.hibernate(&self.settings, id, &paths, hibernation);
        let _ = fs::remove_file(paths.hibernation_lock());
        if let Err(error) = stored {
            self.undo_hibernation(id, &paths, presence);
            return Err(error);
        }
        base::sync_dir(&paths.data).at(DriverStep::StoreProcesses)?;
        self.end_processes(id, &paths)?;
        // What they have written must not be older than they are. The disk is detached when nothing uses it any more.
        loopdev::wait_until_detached(&paths.disk())
            .and_then(|()| File::open(paths.disk())?.sync_all())
            .and_then(|()| stored_processes::size(&paths.memory()))
            .at(DriverStep::StoreProcesses)
    }

    /// The backend that can store the processes of a sandbox, its release, and space for them.
    fn prepare_to_store(
        &self,
        id: &SandboxId,
        paths: &Paths,
    ) -> Result<(&dyn Backend, String, SpaceClaim<'_>), DriverError> {
        let isolation = isolation_of(paths);
        let unsupported =
            || DriverError::failed(DriverStep::StoreProcesses, format!("isolation '{isolation}' cannot"));
        let backend = self.backends.get(&isolation).ok_or_else(unsupported)?;
        let release = backend.release().ok_or_else(unsupported)?;
        if !paths.agent_name().exists() || paths.link_dir().exists() {
            let reason = "an earlier version of the service has started it".to_owned();
            return Err(DriverError::NotStorable { reason });
        }
        Ok((backend.as_ref(), release, self.claim_space(id, paths)?))
    }

    /// Copies the processes of a running sandbox into a directory. They stand still afterwards.
    pub(super) fn copy_processes(
        &self,
        id: &SandboxId,
        target: &Path,
    ) -> Result<Box<dyn Standstill + '_>, DriverError> {
        let paths = self.paths(id);
        let (backend, release, _claim) = self.prepare_to_store(id, &paths)?;
        let lock = stored_processes::prepare_in(target, &paths, &release).at(DriverStep::PrepareToStore)?;
        let copied = backend.copy_processes(&self.settings, id, &paths, ProcessCopy { target, lock });
        let unlock = Unlock(paths.hibernation_lock());
        let copied = copied?;
        Ok(Box::new(Copied { standstill: copied, _unlock: unlock }))
    }

    /// Puts the processes of a snapshot beside a disk that was made of it.
    pub(super) fn share_processes(
        &self,
        spec: &SandboxSpec,
        snapshot: &SnapshotId,
        target: &Path,
    ) -> Result<(), DriverError> {
        let memory = self.snapshot(snapshot).memory();
        let (_, backend) = self.backend_for(spec)?;
        Self::check_release(&memory, backend)?;
        stored_processes::share(&memory, target).at(DriverStep::CopyProcesses)
    }

    /// Claims the space for the memory of a sandbox, as long as it is being written.
    fn claim_space(&self, id: &SandboxId, paths: &Paths) -> Result<SpaceClaim<'_>, DriverError> {
        // All of it: the memory of processes under gVisor counts as cached.
        let needed = self.cgroups.usage(id.as_str()).map_or(0, |(_, memory, _)| memory);
        let claimed = self.memory_writes.fetch_add(needed, Ordering::Relaxed).saturating_add(needed);
        let claim = SpaceClaim { claimed: &self.memory_writes, bytes: needed };
        let space =
            rustix::fs::statvfs(&paths.data).map_err(io::Error::from).at(DriverStep::PrepareToStore)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < claimed.saturating_add(SPARE_BYTES) {
            let source = io::Error::from(Errno::NOSPC);
            return Err(DriverError::Exhausted { what: "disk space for the memory of a sandbox", source });
        }
        Ok(claim)
    }

    /// The sandbox keeps its processes if they could not be stored.
    fn undo_hibernation(&self, id: &SandboxId, paths: &Paths, before: Presence) {
        let undone = remove_tree(&paths.unfinished_memory()).and_then(|()| {
            let is_running = self.cgroups.population(id.as_str())? == Population::Running;
            if is_running && before == Presence::Paused {
                self.cgroups.freeze(id.as_str(), super::FREEZE_TIMEOUT)?;
            }
            Ok(())
        });
        if let Err(error) = undone {
            tracing::error!(%id, %error, "could not undo a failed hibernation");
        }
    }

    /// Fails if this host's backend cannot continue the stored processes.
    pub(super) fn check_release(memory: &Path, backend: &dyn Backend) -> Result<(), DriverError> {
        let stored = stored_processes::release(memory).at(DriverStep::ReadStoredProcesses)?;
        let present = backend.release().unwrap_or_else(|| "no backend that can continue them".to_owned());
        if stored == present { Ok(()) } else { Err(DriverError::OtherRelease { stored, present }) }
    }

    /// Removes stored processes.
    pub(super) fn discard_memory(&self, id: &SandboxId) -> Result<(), DriverError> {
        stored_processes::discard(&self.paths(id)).at(DriverStep::RemoveStoredProcesses)
    }
}
