//! Snapshots that a client of the engine takes for itself. Their account does not see them, but their bytes count in its quotas.

use std::sync::Arc;

use api::SnapshotId;
use store::{Batch, SnapshotRecord};

use super::Engine;
use crate::error::EngineError;
use crate::template::Template;

impl Engine {
    /// The newest internal snapshot of an account that was taken with this key.
    pub fn find_internal_snapshot(&self, account: &str, origin_key: &str) -> Option<Arc<SnapshotRecord>> {
        self.services.snapshots.find_internal(account, origin_key)
    }

    /// All internal snapshots of an account.
    pub fn internal_snapshots(&self, account: &str) -> Vec<Arc<SnapshotRecord>> {
        self.services.snapshots.internal(account)
    }

    /// A snapshot of this host, internal or not.
    pub fn any_snapshot(&self, account: &str, id: &SnapshotId) -> Result<Arc<SnapshotRecord>, EngineError> {
        self.services.snapshots.find_any(account, id)
    }

    /// What sandboxes above a snapshot of this host begin with, internal or not.
    pub fn template_of_any_snapshot(&self, account: &str, id: &SnapshotId) -> Result<Template, EngineError> {
        self.services.snapshots.template_of_any(account, id)
    }

    /// Deletes internal snapshots, all or none, without events. At most [`store::MAX_WRITES`].
    pub async fn delete_internal_snapshots(&self, ids: &[SnapshotId]) -> Result<(), EngineError> {
        let batch = ids.iter().fold(Batch::new(), |batch, id| batch.delete_snapshot(id.clone()));
        self.services.stamped_store.commit(batch).await?;
        for id in ids {
            self.services.snapshots.remove(id);
        }
        Ok(())
    }
}
