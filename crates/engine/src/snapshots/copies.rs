//! Copies of snapshots in an object store, and what of the snapshots is on this host.
//!
//! ```text
//! a snapshot is taken -> `object_store::upload` stores a copy in the background
//! nothing uses it for long -> `object_store::upload` removes it from this host
//! it is used -> `object_store::fetch` brings it back, also that of another host
//! ```

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use api::{SnapshotId, SnapshotStorage};
use archive::Archive;
use driver::snapshot_of_layer;
use rules::TimeMs;
use store::SnapshotRecord;
use tokio::sync::{Notify, RwLock};

use crate::settings::{FindImage, SnapshotCopies, Template};

pub struct Copies {
    pub archive: Archive,
    /// Snapshots that nothing has used for this time leave this host; 0 for never.
    pub local_for_ms: u64,
    find_digest: FindImage,
    /// Held by whoever removes disks of snapshots while it decides and removes. A reader that holds a snapshot and then finds its files
    /// keeps them.
    pub removal: RwLock<()>,
    /// One transfer at a time for each snapshot.
    transfers: Mutex<HashMap<SnapshotId, Weak<tokio::sync::Mutex<()>>>>,
    presence: Mutex<Presence>,
    /// Notified when a snapshot was taken or deleted.
    pub work: Notify,
}

#[derive(Default)]
struct Presence {
    /// Disks that only the object store has.
    remote: HashSet<SnapshotId>,
    /// When a disk was used, since the start.
    used: HashMap<SnapshotId, TimeMs>,
}

/// The ids of the snapshots among layers, topmost first.
pub fn snapshot_ids(layers: &[String]) -> Vec<SnapshotId> {
    layers.iter().filter_map(|layer| snapshot_of_layer(Path::new(layer))).collect()
}

impl Copies {
    pub fn new(settings: SnapshotCopies) -> Self {
        let SnapshotCopies { archive, local_for_ms, find_digest } = settings;
        Self {
            archive,
            local_for_ms,
            find_digest,
            removal: RwLock::default(),
            transfers: Mutex::default(),
            presence: Mutex::default(),
            work: Notify::new(),
        }
    }

    fn presence(&self) -> std::sync::MutexGuard<'_, Presence> {
        // Every change under the lock is complete before anything can panic.
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The image with a digest, if this host has it.
    pub fn image(&self, digest: &str) -> Option<Template> {
        (self.find_digest)(digest)
    }

    /// Where a snapshot of this host is.
    pub fn storage(&self, record: &SnapshotRecord) -> SnapshotStorage {
        if record.build_key.is_some() {
            return SnapshotStorage::Local;
        }
        if !self.archive.has(record.id.as_str()) {
            return SnapshotStorage::Uploading;
        }
        let presence = self.presence();
        let is_remote = snapshot_ids(&record.layers).iter().any(|id| presence.remote.contains(id));
        if is_remote { SnapshotStorage::Remote } else { SnapshotStorage::Stored }
    }

    pub fn is_remote(&self, id: &SnapshotId) -> bool {
        self.presence().remote.contains(id)
    }

    pub fn set_remote(&self, id: &SnapshotId, is_remote: bool) {
        let mut presence = self.presence();
        if is_remote {
            presence.remote.insert(id.clone());
            presence.used.remove(id);
        } else {
            presence.remote.remove(id);
        }
    }

    pub fn set_used(&self, ids: &[SnapshotId], now: TimeMs) {
        let mut presence = self.presence();
        for id in ids {
            presence.used.insert(id.clone(), now);
        }
    }

    /// When a disk was last used, as far as is known.
    pub fn used_at(&self, id: &SnapshotId) -> Option<TimeMs> {
        self.presence().used.get(id).copied()
    }

    /// The lock for the transfer of a snapshot.
    pub fn transfer(&self, id: &SnapshotId) -> Arc<tokio::sync::Mutex<()>> {
        let mut all = self.transfers.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, lock| lock.strong_count() > 0);
        let lock = all.get(id).and_then(Weak::upgrade).unwrap_or_default();
        all.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }
}
