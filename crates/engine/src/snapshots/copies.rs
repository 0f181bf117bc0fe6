//! Copies of snapshots in an object store, and what of the snapshots is on this host.
//!
//! ```text
//! a snapshot is taken -> `object_store::upload` stores a copy in the background
//! nothing uses it for long -> `object_store::evict` removes it from this host
//! it is used -> `object_store::fetch` brings it back, also that of another host
//! ```

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use api::{SandboxId, SnapshotId, SnapshotStorage};
use archive::Archive;
use base::IgnorePoison;
use driver::snapshot_of_layer;
use permits::TurnPermits;
use rules::TimeMs;
use store::SnapshotRecord;
use tokio::sync::RwLock;

use crate::template::FindImage;

/// Transfers to this host at a time.
const CONCURRENT_TRANSFERS: usize = 2;

type Locks<T> = HashMap<T, Weak<tokio::sync::Mutex<()>>>;

/// Where copies of snapshots are stored.
pub struct SnapshotCopies {
    pub archive: Archive,
    /// Snapshots that nothing has used for this time leave this host; 0 for never.
    pub local_for_ms: u64,
    /// Finds an image on this host by its digest.
    pub find_digest: FindImage,
}

pub struct Copies {
    pub archive: Archive,
    /// Snapshots that nothing has used for this time leave this host; 0 for never.
    pub local_for_ms: u64,
    find_digest: FindImage,
    /// Held by whoever removes disks of snapshots while it decides and removes. A reader that holds a snapshot and then finds its files
    /// keeps them.
    pub removal: RwLock<()>,
    opened_at: TimeMs,
    pub transfer_permits: TurnPermits,
    /// One transfer at a time for each snapshot.
    transfers: Mutex<Locks<SnapshotId>>,
    adoptions: Mutex<Locks<SandboxId>>,
    state: Mutex<CopyState>,
}

#[derive(Default)]
struct CopyState {
    /// Disks that only the object store has.
    remote: HashSet<SnapshotId>,
    /// When a disk was used, since the start.
    used: HashMap<SnapshotId, TimeMs>,
    /// Sandboxes whose copies are stored, with the time of the hibernation.
    hibernations: HashMap<SandboxId, TimeMs>,
}

/// The ids of the snapshots among layers, topmost first.
pub fn snapshot_ids(layers: &[String]) -> Vec<SnapshotId> {
    layers.iter().filter_map(|layer| snapshot_of_layer(Path::new(layer))).collect()
}

impl Copies {
    pub fn new(settings: SnapshotCopies, now: TimeMs) -> Self {
        let SnapshotCopies { archive, local_for_ms, find_digest } = settings;
        Self {
            archive,
            local_for_ms,
            find_digest,
            opened_at: now,
            transfer_permits: TurnPermits::new(CONCURRENT_TRANSFERS),
            removal: RwLock::default(),
            transfers: Mutex::default(),
            adoptions: Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, CopyState> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().ignore_poison()
    }

    /// The layers of the image with a digest, if this host has it.
    pub fn image_layers(&self, digest: &str) -> Option<Vec<String>> {
        let image = (self.find_digest)(digest)?;
        Some(image.layers.iter().map(|layer| layer.to_string_lossy().into_owned()).collect())
    }

    /// The names of an image: those that another host has given it, and the one that this host has for its digest.
    pub fn images_below<'a>(&self, names: impl IntoIterator<Item = &'a str>, digest: &str) -> Vec<String> {
        let own = (self.find_digest)(digest).map(|image| image.name);
        names.into_iter().map(str::to_owned).chain(own).collect()
    }

    /// When a sandbox was hibernated whose copy is stored.
    pub fn stored_hibernation(&self, id: &SandboxId) -> Option<TimeMs> {
        self.state().hibernations.get(id).copied()
    }

    pub fn set_stored_hibernation(&self, id: &SandboxId, at: Option<TimeMs>) {
        match at {
            Some(at) => self.state().hibernations.insert(id.clone(), at),
            None => self.state().hibernations.remove(id),
        };
    }

    /// Where a snapshot of this host is.
    pub fn storage(&self, record: &SnapshotRecord) -> SnapshotStorage {
        if record.origin_key().is_some() {
            return SnapshotStorage::Local;
        }
        if !self.archive.has(record.id.as_str()) {
            return SnapshotStorage::Uploading;
        }
        let state = self.state();
        let is_remote = snapshot_ids(&record.layers).iter().any(|id| state.remote.contains(id));
        if is_remote { SnapshotStorage::Remote } else { SnapshotStorage::Stored }
    }

    /// This host lacks the disk.
    pub fn set_remote(&self, id: &SnapshotId) {
        let mut state = self.state();
        state.remote.insert(id.clone());
        state.used.remove(id);
    }

    /// This host has the disk.
    pub fn set_present(&self, id: &SnapshotId) {
        self.state().remote.remove(id);
    }

    pub fn set_used(&self, ids: &[SnapshotId], now: TimeMs) {
        let mut state = self.state();
        for id in ids {
            state.used.insert(id.clone(), now);
        }
    }

    /// When a disk was last used, as far as is known: before the start it may have been used until then.
    pub fn used_at(&self, id: &SnapshotId) -> TimeMs {
        self.state().used.get(id).copied().unwrap_or(self.opened_at)
    }

    /// The lock for the adoption of a sandbox.
    pub fn adoption(&self, id: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        lock_of(&self.adoptions, id)
    }

    /// The lock for the transfer of a snapshot.
    pub fn transfer(&self, id: &SnapshotId) -> Arc<tokio::sync::Mutex<()>> {
        lock_of(&self.transfers, id)
    }
}

fn lock_of<T: Clone + Eq + Hash>(all: &Mutex<Locks<T>>, id: &T) -> Arc<tokio::sync::Mutex<()>> {
    let mut all = all.lock().ignore_poison();
    all.retain(|_, lock| lock.strong_count() > 0);
    let lock = all.get(id).and_then(Weak::upgrade).unwrap_or_default();
    all.insert(id.clone(), Arc::downgrade(&lock));
    lock
}
