//! The registry of sandboxes that have an actor.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::SandboxId;
use store::SandboxRecord;

use crate::mailbox::ActorHandle;

#[derive(Default)]
pub struct SandboxRegistry {
    actors: RwLock<HashMap<SandboxId, ActorHandle>>,
}

impl SandboxRegistry {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<SandboxId, ActorHandle>> {
        // A panic while the lock is held leaves a valid map.
        self.actors.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<SandboxId, ActorHandle>> {
        self.actors.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn find(&self, id: &SandboxId) -> Option<ActorHandle> {
        self.read().get(id).cloned()
    }

    pub fn insert(&self, id: SandboxId, actor: ActorHandle) {
        self.write().insert(id, actor);
    }

    pub fn remove(&self, id: &SandboxId) {
        self.write().remove(id);
    }

    pub fn clear(&self) {
        self.write().clear();
    }

    pub fn count(&self) -> usize {
        self.read().len()
    }

    /// Calls `visit` with the published state of each sandbox.
    /// The published records of all sandboxes.
    pub fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.read().values().map(|actor| Arc::clone(&actor.status.borrow().record)).collect()
    }
}
