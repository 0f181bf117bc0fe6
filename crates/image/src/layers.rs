//! Layers in progress, shared by the pulls of this process: two images with a common layer fetch it once, and the
//! second can use it before the first is stored. Pulls for different audiences do not share it: each of their sources has to deliver it.
//!
//! A layer stays in a work directory until its image is complete; [`commit`] then moves all layers of the image into
//! the store. When the last pull that holds a slot fails, the slot and its files are removed.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::path::Path;
use std::sync::{Arc, Mutex, Weak};

use base::IgnorePoison;
use tempfile::TempDir;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::client::Audience;
use crate::fault::Fault;
use crate::store::Store;

/// The name of a layer's tree in its work directory.
pub(crate) const TREE: &str = "tree";

/// One layer for an audience: stored on disk, or unpacked in a work directory.
pub(crate) struct Slot {
    pub(crate) id: String,
    state: Arc<AsyncMutex<SlotState>>,
}

#[derive(Default)]
enum SlotState {
    /// Not received by the pulls that hold the slot. It can be on disk.
    #[default]
    Missing,
    Unpacked(TempDir),
    Stored,
}

/// Whether a pull may use a layer that is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reuse {
    Allowed,
    /// Its source has to deliver it first.
    Forbidden,
}

impl Slot {
    /// Creates the layer if it is missing. Concurrent callers wait, and try themselves if the first fails.
    pub(crate) async fn fill(
        &self,
        store: &Store,
        reuse: Reuse,
        make: impl Future<Output = Result<TempDir, Fault>>,
    ) -> Result<(), Fault> {
        let mut state = self.state.lock().await;
        if matches!(*state, SlotState::Missing) {
            *state = if reuse == Reuse::Allowed && store.has_layer(&self.id) {
                SlotState::Stored
            } else {
                SlotState::Unpacked(make.await?)
            };
        }
        Ok(())
    }

    /// Runs a function on the tree at its current path; the tree is not moved meanwhile.
    pub(crate) async fn with_tree<T>(&self, store: &Store, read: impl FnOnce(&Path) -> T) -> T {
        match &*self.state.lock().await {
            SlotState::Unpacked(scratch) => read(&scratch.path().join(TREE)),
            SlotState::Missing | SlotState::Stored => read(&store.layer_path(&self.id)),
        }
    }
}

/// One build, and its layer when it is complete.
#[derive(Default)]
pub(crate) struct Build(AsyncMutex<Option<Arc<Slot>>>);

/// Layers and builds in progress. Holds weak references, because the pulls own the slots.
#[derive(Default)]
pub(crate) struct LayerTable {
    slots: Mutex<HashMap<(Audience, String), Weak<Slot>>>,
    builds: Mutex<HashMap<String, Weak<Build>>>,
}

impl LayerTable {
    pub(crate) fn slot(&self, audience: &Audience, id: &str) -> Arc<Slot> {
        let key = (audience.clone(), id.to_owned());
        find(&self.slots, key, || Slot { id: id.to_owned(), state: Arc::default() })
    }

    /// The layer that `make` returns for `key`. Concurrent pulls share one build. The caller keeps the [`Build`]
    /// until it has committed.
    pub(crate) async fn build(
        &self,
        key: &str,
        make: impl Future<Output = Result<Arc<Slot>, Fault>>,
    ) -> Result<(Arc<Build>, Arc<Slot>), Fault> {
        let build = find(&self.builds, key.to_owned(), Build::default);
        let mut built = build.0.lock().await;
        let slot = match &*built {
            Some(slot) => slot.clone(),
            None => built.insert(make.await?).clone(),
        };
        drop(built);
        Ok((build, slot))
    }
}

fn find<K: Eq + Hash, T>(table: &Mutex<HashMap<K, Weak<T>>>, key: K, new: impl FnOnce() -> T) -> Arc<T> {
    let mut table = table.lock().ignore_poison();
    if let Some(found) = table.get(&key).and_then(Weak::upgrade) {
        return found;
    }
    table.retain(|_, slot| slot.strong_count() > 0);
    let created = Arc::new(new());
    table.insert(key, Arc::downgrade(&created));
    created
}

/// Moves unpacked layers into the store. The slots stay locked meanwhile, so that no layer is fetched twice.
pub(crate) async fn commit(store: &Arc<Store>, slots: &[Arc<Slot>]) -> Result<(), Fault> {
    let mut slots: Vec<_> = slots.to_vec();
    // Lock in a fixed order, so that two pulls cannot deadlock.
    slots.sort_by(|a, b| a.id.cmp(&b.id));
    slots.dedup_by(|a, b| a.id == b.id);
    let mut guards = Vec::new();
    for slot in &slots {
        guards.push((slot.id.clone(), slot.state.clone().lock_owned().await));
    }
    let store = store.clone();
    let moved = tokio::task::spawn_blocking(move || {
        let ready = |(id, state): &(String, OwnedMutexGuard<SlotState>)| match &**state {
            SlotState::Unpacked(scratch) => Some((id.clone(), scratch.path().join(TREE))),
            SlotState::Missing | SlotState::Stored => None,
        };
        let trees: Vec<_> = guards.iter().filter_map(ready).collect();
        store.commit_layers(&trees).map_err(Fault::io("store the layers"))?;
        for (_, state) in &mut guards {
            **state = SlotState::Stored;
        }
        Ok(())
    });
    moved.await.map_err(Fault::io("store the layers"))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn pulls_share_a_layer_as_long_as_one_of_them_has_it() {
        let table = LayerTable::default();
        let one = table.slot(&Audience::Everyone, "sha256:1");
        assert!(Arc::ptr_eq(&one, &table.slot(&Audience::Everyone, "sha256:1")));
        assert!(!Arc::ptr_eq(&one, &table.slot(&Audience::Everyone, "sha256:2")));
        // A manifest can name a layer without having it.
        let of = |repository: &str| table.slot(&Audience::Repository(repository.to_owned()), "sha256:1");
        let private = of("a");
        assert!(!Arc::ptr_eq(&one, &private) && !Arc::ptr_eq(&private, &of("b")));
        assert!(Arc::ptr_eq(&private, &of("a")));
        let before = Arc::downgrade(&one);
        drop(one);
        assert!(before.upgrade().is_none(), "the table owns nothing");
    }

    #[test]
    fn slots_that_nobody_has_are_forgotten() {
        let table = LayerTable::default();
        for number in 0..10 {
            drop(table.slot(&Audience::Everyone, &number.to_string()));
        }
        let _kept = table.slot(&Audience::Everyone, "last");
        assert_eq!(table.slots.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_build_is_made_once_and_a_failed_one_again() {
        let table = LayerTable::default();
        let made = AtomicUsize::new(0);
        let make = |result: Result<Arc<Slot>, Fault>| {
            let made = &made;
            async move {
                made.fetch_add(1, Ordering::Relaxed);
                result
            }
        };
        let failed = table.build("key", make(Err(Fault::refused("no network")))).await;
        assert_eq!(failed.err().map(|fault| fault.reason), Some("no network".to_owned()));
        let slot = table.slot(&Audience::Everyone, "1");
        let (_first, built) = table.build("key", make(Ok(Arc::clone(&slot)))).await.unwrap();
        let (_second, again) = table.build("key", make(Err(Fault::refused("not called")))).await.unwrap();
        assert!(Arc::ptr_eq(&built, &slot) && Arc::ptr_eq(&again, &slot));
        assert_eq!(made.load(Ordering::Relaxed), 2);
        let other = table.slot(&Audience::Everyone, "2");
        let (_third, another) = table.build("another key", make(Ok(other))).await.unwrap();
        assert!(!Arc::ptr_eq(&another, &slot));
    }
}
