//! Removes the disks of snapshots that nothing refers to: of deleted snapshots, of failed ones, and of forks that have ended. Their
//! processes are removed as soon as no sandbox can be created from them. What is removed counts in no quota any more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::SnapshotId;
use rules::RepeatableWork;

use super::{Copies, SnapshotRegistry, snapshot_ids};
use crate::detached::ExecutionRegistry;
use crate::error::{DaemonError, EngineError};
use crate::host::Host;
use crate::record::interruptions::Interruptions;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// Sweeps are at least this far apart, so that many terminations cause one.
const INTERVAL: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(10);

/// The task that removes disks. It never fails: a sweep that fails is logged and repeated.
pub struct Sweeper {
    pub host: Arc<Host>,
    pub sandboxes: Arc<SandboxRegistry>,
    pub snapshots: Arc<SnapshotRegistry>,
    pub detached: Arc<ExecutionRegistry>,
    pub copies: Option<Arc<Copies>>,
    pub interruptions: Arc<Interruptions>,
    /// What an earlier daemon has left, once it is known. Its removal may have ended that one.
    pub leftovers: Option<HashSet<SnapshotId>>,
}

impl Sweeper {
    /// Sweeps once, and whenever it is requested.
    pub fn start(mut self, tasks: &Tasks) {
        tasks.spawn_until_stopped(async move {
            loop {
                self.snapshots.sweep_begins();
                let swept = self.sweep().await;
                self.snapshots.sweep_ended();
                tokio::time::sleep(INTERVAL).await;
                match swept {
                    Ok(()) => self.snapshots.sweep_requested().await,
                    Err(error) => {
                        tracing::error!(%error, "could not remove superfluous snapshots; trying again");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        });
    }

    async fn sweep(&mut self) -> Result<(), EngineError> {
        let Self { host, sandboxes, snapshots, .. } = &*self;
        // A snapshot of another host has no record: who uses it takes a hold, and then looks whether its files are here.
        let _removal = match &self.copies {
            Some(copies) => Some(copies.removal.write().await),
            None => None,
        };
        // What is finished before the list is made is in the list, or not on this host.
        let left = snapshots.left();
        // Listed before the references are read: what is made meanwhile is not in the list.
        let found = host.driver().list_snapshots().await?;
        for id in left.iter().filter(|id| !found.contains(id)) {
            snapshots.removed(id);
        }
        if found.is_empty() {
            self.leftovers.get_or_insert_default();
            return Ok(());
        }
        let (needed, usable) = (snapshots.needed(), snapshots.usable());
        let layers = used_by(sandboxes);
        if self.leftovers.is_none() {
            let is_needed =
                |id: &SnapshotId| usable.contains(id) || needed.contains(id) || layers.contains(id);
            let count = found.iter().filter(|id| !is_needed(id)).count();
            if count > 0 {
                tracing::warn!(count, "removing disks of snapshots that nothing in the database refers to");
            }
            self.leftovers = Some(found.iter().cloned().collect());
        }
        let mut result = Ok(());
        for id in found.into_iter().filter(|id| !usable.contains(id)) {
            let removed = if needed.contains(&id) || layers.contains(&id) {
                self.keep_as_layer(&id).await
            } else {
                self.remove(&id).await
            };
            result = removed.and(result);
        }
        result
    }

    /// Removes a snapshot from which no sandbox can be created.
    async fn remove(&self, id: &SnapshotId) -> Result<(), EngineError> {
        if !self.leftovers.as_ref().is_some_and(|leftovers| leftovers.contains(id)) {
            return self.remove_files(id).await;
        }
        match self.interruptions.begin(RepeatableWork::SnapshotRemoval, id.as_str(), None).await {
            Ok(work) => {
                let removed = self.remove_files(id).await;
                work.end().await;
                removed
            }
            // It stays, and the log says so.
            Err(EngineError::Daemon(DaemonError::GaveUp(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn remove_files(&self, id: &SnapshotId) -> Result<(), EngineError> {
        // First: the snapshots are found again by what the driver has of them.
        self.detached.remove_stored(id).await?;
        tracing::debug!(%id, "removing a snapshot that nothing refers to");
        self.host.driver().remove_snapshot(id).await?;
        self.snapshots.removed(id);
        Ok(())
    }

    /// Removes what sandboxes and snapshots above it do not need.
    async fn keep_as_layer(&self, id: &SnapshotId) -> Result<(), EngineError> {
        self.detached.remove_stored(id).await?;
        self.host.driver().discard_snapshot_processes(id).await?;
        if self.snapshots.is_unmeasured(id) {
            let bytes = self.host.driver().snapshot_bytes(id).await?;
            self.snapshots.keep_as_layer(id, bytes);
        }
        Ok(())
    }
}

/// The snapshots below sandboxes. Read it after the holds: a create commits its record before it drops its hold.
pub fn used_by(sandboxes: &SandboxRegistry) -> HashSet<SnapshotId> {
    sandboxes.records().iter().flat_map(|record| snapshot_ids(&record.layers)).collect()
}
