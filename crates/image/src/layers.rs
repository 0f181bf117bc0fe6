//! Layers in progress, shared by the pulls of this process: two images with a common layer fetch it once, and the
//! second can use it before the first is stored.
//!
//! A layer stays in a work directory until its image is complete; [`commit`] then moves all layers of the image into
//! the store. When the last pull that holds a slot fails, the slot and its files are removed.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;
use tokio::sync::Mutex as AsyncMutex;

use crate::fault::Fault;
use crate::store::Store;

/// The name of a layer's tree in its work directory.
pub(crate) const TREE: &str = "tree";

/// One layer: stored on disk, or unpacked in a work directory.
pub(crate) struct Slot {
    pub(crate) id: String,
    pending: Arc<AsyncMutex<Option<TempDir>>>,
}

impl Slot {
    /// Creates the layer if it is missing. Concurrent callers wait, and try themselves if the first fails.
    pub(crate) async fn fill(
        &self,
        store: &Store,
        make: impl Future<Output = Result<TempDir, Fault>>,
    ) -> Result<(), Fault> {
        let mut pending = self.pending.lock().await;
        if pending.is_none() && !store.has_layer(&self.id) {
            *pending = Some(make.await?);
        }
        Ok(())
    }

    /// Runs a function on the tree at its current path; the tree is not moved meanwhile.
    pub(crate) async fn with_tree<T>(&self, store: &Store, read: impl FnOnce(&Path) -> T) -> T {
        match &*self.pending.lock().await {
            Some(scratch) => read(&scratch.path().join(TREE)),
            None => read(&store.layer_path(&self.id)),
        }
    }
}

/// One build, and its layer when it is complete.
#[derive(Default)]
pub(crate) struct Build(AsyncMutex<Option<Arc<Slot>>>);

/// Layers and builds in progress. Holds weak references, because the pulls own the slots.
#[derive(Default)]
pub(crate) struct LayerTable {
    slots: Mutex<HashMap<String, Weak<Slot>>>,
    builds: Mutex<HashMap<String, Weak<Build>>>,
}

impl LayerTable {
    pub(crate) fn slot(&self, id: &str) -> Arc<Slot> {
        find(&self.slots, id, || Slot { id: id.to_owned(), pending: Arc::default() })
    }

    /// The layer that `make` returns for `key`. Concurrent pulls share one build. The caller keeps the [`Build`]
    /// until it has committed.
    pub(crate) async fn build(
        &self,
        key: &str,
        make: impl Future<Output = Result<Arc<Slot>, Fault>>,
    ) -> Result<(Arc<Build>, Arc<Slot>), Fault> {
        let build = find(&self.builds, key, Build::default);
        let mut built = build.0.lock().await;
        let slot = match &*built {
            Some(slot) => slot.clone(),
            None => built.insert(make.await?).clone(),
        };
        drop(built);
        Ok((build, slot))
    }
}

fn find<T>(table: &Mutex<HashMap<String, Weak<T>>>, key: &str, new: impl FnOnce() -> T) -> Arc<T> {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = table.get(key).and_then(Weak::upgrade) {
        return found;
    }
    table.retain(|_, slot| slot.strong_count() > 0);
    let created = Arc::new(new());
    table.insert(key.to_owned(), Arc::downgrade(&created));
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
        guards.push((slot.id.clone(), slot.pending.clone().lock_owned().await));
    }
    let store = store.clone();
    let moved = tokio::task::spawn_blocking(move || {
        let ready = |(id, guard): &(String, tokio::sync::OwnedMutexGuard<Option<TempDir>>)| {
            guard.as_ref().map(|scratch| (id.clone(), scratch.path().join(TREE)))
        };
        let trees: Vec<_> = guards.iter().filter_map(ready).collect();
        store.commit_layers(&trees).map_err(Fault::io("store the layers"))?;
        for (_, guard) in &mut guards {
            drop(guard.take());
        }
        Ok(())
    });
    moved.await.map_err(Fault::io("store the layers"))?
}
