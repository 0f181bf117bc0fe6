//! What all parts of one engine share.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use api::{SandboxId, SandboxState};
use driver::Driver;
use net::Network;
use store::{NewEvent, SandboxRecord, Store};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::clock::Clock;
use crate::counters::{Counters, Gauge};
use crate::detached::registry::ExecutionRegistry;
use crate::ledger::Ledger;
use crate::mailbox::ActorHandle;
use crate::settings::{EngineSettings, Template};
use crate::timer::Timer;
use crate::warm_pool::WarmPool;

/// Finds an image that is on this host.
pub type FindImage = Arc<dyn Fn(&str) -> Option<Template> + Send + Sync>;

pub struct Shared {
    pub driver: Arc<dyn Driver>,
    pub store: Arc<dyn Store>,
    pub network: Arc<dyn Network>,
    pub find_image: FindImage,
    pub clock: Clock,
    pub settings: EngineSettings,
    pub ledger: Arc<Ledger>,
    pub timer: Timer,
    pub warm_pool: WarmPool,
    /// Every task of the engine but the timer, which ends by itself.
    pub tasks: TaskTracker,
    pub stopping: CancellationToken,
    /// Creates under way for callers; the pool stands back for them.
    pub creating: Gauge,
    /// Commands that were let in, and those that wait.
    pub commands: Gauge,
    pub waiting: Gauge,
    pub counters: Counters,
    /// Executions that outlive their requests.
    pub detached: ExecutionRegistry,
    registry: RwLock<HashMap<SandboxId, ActorHandle>>,
}

impl Shared {
    pub fn new(
        driver: Arc<dyn Driver>,
        store: Arc<dyn Store>,
        network: Arc<dyn Network>,
        find_image: FindImage,
        clock: Clock,
        settings: EngineSettings,
    ) -> Self {
        Self {
            driver,
            store,
            network,
            find_image,
            clock,
            ledger: Arc::new(Ledger::new(settings.capacity, settings.slots)),
            timer: Timer::start(),
            warm_pool: WarmPool::new(&settings.pool),
            detached: ExecutionRegistry::new(settings.detached.clone()),
            settings,
            tasks: TaskTracker::new(),
            stopping: CancellationToken::new(),
            creating: Gauge::default(),
            commands: Gauge::default(),
            waiting: Gauge::default(),
            counters: Counters::default(),
            registry: RwLock::default(),
        }
    }

    /// What cannot be noted is counted, and said in the log.
    pub fn append_event(&self, event: NewEvent) {
        if let Err(error) = self.store.note(event) {
            self.counters.events_lost.add(1);
            tracing::error!(%error, "an event is lost");
        }
    }

    pub fn find(&self, id: &SandboxId) -> Option<ActorHandle> {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    pub fn register(&self, id: SandboxId, handle: ActorHandle) {
        self.registry.write().unwrap_or_else(PoisonError::into_inner).insert(id, handle);
    }

    pub fn unregister(&self, id: &SandboxId) {
        self.registry.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    pub fn unregister_all(&self) {
        self.registry.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Calls back with the published state of each sandbox there is.
    pub fn each_state(&self, mut see: impl FnMut(SandboxState)) {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        registry.values().for_each(|handle| see(handle.status.borrow().state()));
    }

    /// The published record of each sandbox there is.
    pub fn records(&self) -> Vec<Arc<SandboxRecord>> {
        let registry = self.registry.read().unwrap_or_else(PoisonError::into_inner);
        registry.values().map(|handle| Arc::clone(&handle.status.borrow().record)).collect()
    }

    pub fn count(&self) -> usize {
        self.registry.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}
