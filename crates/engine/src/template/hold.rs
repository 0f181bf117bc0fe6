//! Holds: a snapshot whose disk is being made or used for a new sandbox stays on the host, even without a record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use api::SnapshotId;
use base::IgnorePoison;
use tokio::sync::Notify;

/// The held snapshots with the numbers of their holds.
#[derive(Debug, Default)]
pub struct HoldCounts {
    counts: Mutex<HashMap<SnapshotId, usize>>,
    /// Notified when a disk may have become superfluous.
    pub sweep_wanted: Notify,
}

impl HoldCounts {
    fn lock(&self) -> MutexGuard<'_, HashMap<SnapshotId, usize>> {
        // Every change under the lock is complete before anything can panic.
        self.counts.lock().ignore_poison()
    }

    pub fn hold(self: &Arc<Self>, ids: Vec<SnapshotId>) -> SnapshotHold {
        let mut counts = self.lock();
        for id in &ids {
            *counts.entry(id.clone()).or_default() += 1;
        }
        drop(counts);
        SnapshotHold(Some(Arc::new(Held { counts: Arc::clone(self), ids })))
    }

    pub fn held(&self) -> Vec<SnapshotId> {
        self.lock().keys().cloned().collect()
    }
}

/// Keeps disks of snapshots on the host. Clones hold the same ones. The default holds none.
#[derive(Debug, Clone, Default)]
pub struct SnapshotHold(Option<Arc<Held>>);

impl SnapshotHold {
    pub fn holds_any(&self) -> bool {
        self.0.is_some()
    }
}

impl PartialEq for SnapshotHold {
    /// What is held is part of the layers, which are compared as well.
    fn eq(&self, other: &Self) -> bool {
        self.holds_any() == other.holds_any()
    }
}

impl Eq for SnapshotHold {}

#[derive(Debug)]
struct Held {
    counts: Arc<HoldCounts>,
    ids: Vec<SnapshotId>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        for id in &self.ids {
            if let Some(count) = counts.get_mut(id) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(id);
                }
            }
        }
        drop(counts);
        self.counts.sweep_wanted.notify_one();
    }
}
