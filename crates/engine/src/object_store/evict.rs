//! Removes snapshots from this host that the object store has and that nothing has used for long.

use api::SnapshotId;
use store::SnapshotRecord;

use super::upload::Worker;
use crate::error::EngineError;
use crate::services::Services;
use crate::snapshots::used_by;

impl Worker {
    pub(super) async fn evict(&self) -> Result<(), EngineError> {
        if self.copies.local_for_ms == 0 || self.unused().await?.is_empty() {
            return Ok(());
        }
        // The store may have lost objects that the ledger has.
        self.reconcile().await?;
        let Services { host, detached, .. } = &*self.services;
        let _removal = self.copies.removal.write().await;
        for id in self.unused().await? {
            tracing::debug!(%id, "evicting a snapshot that the object store has");
            self.copies.set_remote(&id);
            // The processes first: without them the executions are fetched again, too.
            host.driver().discard_snapshot_processes(&id).await?;
            detached.remove_stored(&id).await?;
            host.driver().remove_snapshot(&id).await?;
            self.services.snapshots.removed(&id);
        }
        Ok(())
    }

    /// The disks that nothing has used for long and that the object store has.
    async fn unused(&self) -> Result<Vec<SnapshotId>, EngineError> {
        let Services { snapshots, registry, host, stamped_store, .. } = &*self.services;
        let before = stamped_store.now().before(self.copies.local_for_ms);
        let is_stored = |record: &SnapshotRecord| {
            self.copies.archive.has(record.id.as_str()) && record.created_at <= before
        };
        let mut unused = host.driver().list_snapshots().await?;
        let removable = snapshots.needed_only_by(is_stored);
        let layers = used_by(registry);
        unused
            .retain(|id| removable.contains(id) && !layers.contains(id) && self.copies.used_at(id) <= before);
        Ok(unused)
    }
}
