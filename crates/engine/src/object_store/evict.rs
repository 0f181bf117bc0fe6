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
        let Services { snapshots, registry, host, detached, stamped_store, .. } = &*self.services;
        if self.copies.local_for_ms == 0 {
            return Ok(());
        }
        let _removal = self.copies.removal.write().await;
        let before = stamped_store.now().before(self.copies.local_for_ms);
        let is_stored = |record: &SnapshotRecord| {
            self.copies.archive.has(record.id.as_str()) && record.created_at <= before
        };
        let removable = snapshots.needed_only_by(is_stored);
        // Read after the holds: a create commits its record before it drops its hold.
        let records = registry.records();
        let layers: HashSet<SnapshotId> =
            records.iter().flat_map(|record| snapshot_ids(&record.layers)).collect();
        for id in host.driver().list_snapshots().await? {
            let is_unused = self.copies.used_at(&id).is_none_or(|used| used <= before);
            if !removable.contains(&id) || layers.contains(&id) || !is_unused {
                continue;
            }
            tracing::debug!(%id, "removing a snapshot from this host that the object store has");
            // First: a crash in between leaves a snapshot that is fetched although its files are here.
            self.copies.set_remote(&id, true);
            detached.remove_stored(&id).await?;
            host.driver().remove_snapshot(&id).await?;
        }
        Ok(())
    }
}
