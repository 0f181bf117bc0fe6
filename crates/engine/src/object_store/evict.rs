//! Removes snapshots from this host that the object store has and that nothing has used for long.

use std::collections::HashSet;

use api::SnapshotId;
use store::SnapshotRecord;

use super::upload::Worker;
use crate::error::EngineError;
use crate::services::Services;
use crate::snapshots::snapshot_ids;

impl Worker {
    pub(super) async fn evict(&self) -> Result<(), EngineError> {
        if self.copies.local_for_ms == 0 || self.unused().await?.is_empty() {
            return Ok(());
        }
        // The last copies on this host are not removed on the word of the ledger.
        self.reconcile().await?;
        let Services { host, detached, .. } = &*self.services;
        let _removal = self.copies.removal.write().await;
        for id in self.unused().await? {
            tracing::debug!(%id, "evicting a snapshot that the object store has");
            self.copies.set_remote(&id, true);
            // The processes first: without them the executions are fetched again, too.
            host.driver().discard_snapshot_processes(&id).await?;
            detached.remove_stored(&id).await?;
            host.driver().remove_snapshot(&id).await?;
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
        // Read after the holds: a create commits its record before it drops its hold.
        let records = registry.records();
        let layers: HashSet<SnapshotId> =
            records.iter().flat_map(|record| snapshot_ids(&record.layers)).collect();
        unused
            .retain(|id| removable.contains(id) && !layers.contains(id) && self.copies.used_at(id) <= before);
        Ok(unused)
    }
}
