//! The registry of sandboxes that have an actor, by id and by name.

pub mod mailbox;
pub mod names;

use std::collections::HashMap;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

use api::SandboxId;
use base::IgnorePoison;
use store::SandboxRecord;

use crate::registry::mailbox::ActorHandle;
use crate::registry::names::SandboxNames;

#[derive(Default)]
pub struct SandboxRegistry {
    actors: RwLock<HashMap<SandboxId, ActorHandle>>,
    /// Behind a lock of its own: requests by id do not wait for it.
    pub names: SandboxNames,
}

impl SandboxRegistry {
    fn read(&self) -> RwLockReadGuard<'_, HashMap<SandboxId, ActorHandle>> {
        // A panic while the lock is held leaves a valid map.
        self.actors.read().ignore_poison()
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<SandboxId, ActorHandle>> {
        self.actors.write().ignore_poison()
    }

    pub fn find(&self, id: &SandboxId) -> Option<ActorHandle> {
        self.read().get(id).cloned()
    }

    pub fn insert(&self, id: SandboxId, actor: ActorHandle) {
        let record = Arc::clone(&actor.status.borrow().record);
        self.write().insert(id, actor);
        self.names.hold(&record);
    }

    pub fn remove(&self, id: &SandboxId) {
        let removed = self.write().remove(id);
        if let Some(actor) = removed {
            self.names.release(&actor.status.borrow().record);
        }
    }

    /// The names stay: a request by name gets the same answer as one by id.
    pub fn clear(&self) {
        self.write().clear();
    }

    pub fn count(&self) -> usize {
        self.read().len()
    }

    /// The published records of all sandboxes.
    pub fn records(&self) -> Vec<Arc<SandboxRecord>> {
        self.read().values().map(|actor| Arc::clone(&actor.status.borrow().record)).collect()
    }
}
