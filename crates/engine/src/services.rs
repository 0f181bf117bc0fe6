//! The services of one engine and how they are wired. Each part of the engine keeps the handles that it uses; only the entry points
//! (`engine`, `sandbox`, `create`, `object_store`) see all of them.

pub mod settings;

use std::sync::Arc;

use driver::Driver;
use net::Network;
use store::Store;
use tokio::sync::mpsc;

use crate::actor::timer::Timer;
use crate::actor::{ActorContext, ActorLimits};
use crate::background::hoarders::HoarderWatch;
use crate::background::pressure::WatchedHost;
use crate::background::purge::{Purge, Retention};
use crate::background::resource_samples::{ResourceSamples, Sampler};
use crate::capacity::host_watch::HostWatch;
use crate::capacity::ledger::Ledger;
use crate::capacity::provision::Provisioner;
use crate::capacity::provision::refill::Refill;
use crate::capacity::provision::warm_pool::WarmPool;
use crate::counters::Counters;
use crate::detached::ExecutionRegistry;
use crate::host::Host;
use crate::record::clock::Clock;
use crate::record::interruptions::Interruptions;
use crate::record::stamped_store::StampedStore;
use crate::registry::SandboxRegistry;
use crate::services::settings::EngineSettings;
use crate::snapshots::take::SnapshotServices;
use crate::snapshots::{Copies, SnapshotCopies, SnapshotRegistry, Sweeper};
use crate::tasks::Tasks;
use crate::template::FindImage;

/// The components that an engine is opened with.
pub struct Parts {
    pub driver: Arc<dyn Driver>,
    pub store: Arc<dyn Store>,
    pub network: Arc<dyn Network>,
    /// Connections and lookups that the network refused; `None` if the network does not report them.
    pub refusals: Option<mpsc::Receiver<net::Refusal>>,
    pub find_image: FindImage,
    pub clock: Clock,
    /// Where copies of snapshots are stored; `None` keeps snapshots on this host only.
    pub copies: Option<SnapshotCopies>,
}

pub struct Services {
    pub host: Arc<Host>,
    pub stamped_store: StampedStore,
    pub counters: Arc<Counters>,
    pub ledger: Arc<Ledger>,
    pub warm_pool: Arc<WarmPool>,
    pub provisioner: Arc<Provisioner>,
    pub registry: Arc<SandboxRegistry>,
    pub snapshots: Arc<SnapshotRegistry>,
    pub copies: Option<Arc<Copies>>,
    pub detached: Arc<ExecutionRegistry>,
    pub interruptions: Arc<Interruptions>,
    pub resource_samples: Arc<ResourceSamples>,
    pub actors: Arc<ActorContext>,
    pub tasks: Tasks,
    pub find_image: FindImage,
    /// The configuration of the host watcher, with its last sample.
    pub host_watch: Option<HostWatch>,
}

impl Services {
    pub fn new(parts: Parts, settings: &EngineSettings) -> Self {
        let Parts { driver, store, network, find_image, clock, copies, refusals: _ } = parts;
        let counters = Arc::new(Counters::default());
        let tasks = Tasks::default();
        let registry = Arc::new(SandboxRegistry::default());
        let host = Arc::new(Host::new(driver, network, clock));
        let stamped_store = StampedStore::new(store, clock, Arc::clone(&counters));
        let ledger = Arc::new(Ledger::new(settings.capacity, settings.quotas.clone(), settings.slots));
        let snapshots = Arc::new(SnapshotRegistry::new(Arc::clone(&ledger)));
        let now = stamped_store.now();
        let interruptions = Arc::new(Interruptions::new(stamped_store.clone(), Arc::clone(&counters)));
        let warm_pool = Arc::new(WarmPool::new(&settings.pool));
        let detached = Arc::new(ExecutionRegistry::new(
            settings.detached.clone(),
            Arc::clone(&host),
            stamped_store.clone(),
            tasks.clone(),
        ));
        let provisioner = Arc::new(Provisioner::new(
            Arc::clone(&host),
            Arc::clone(&ledger),
            Arc::clone(&warm_pool),
            Arc::clone(&detached),
            tasks.clone(),
        ));
        let actors = Arc::new(ActorContext {
            host: Arc::clone(&host),
            provisioner: Arc::clone(&provisioner),
            stamped_store: stamped_store.clone(),
            counters: Arc::clone(&counters),
            registry: Arc::clone(&registry),
            snapshots: Arc::clone(&snapshots),
            detached: Arc::clone(&detached),
            ledger: Arc::clone(&ledger),
            interruptions: Arc::clone(&interruptions),
            timer: Timer::start(),
            tasks: tasks.clone(),
            limits: ActorLimits {
                concurrent_executions: settings.concurrent_executions,
                detached_executions: settings.detached_executions,
                execution_queue: settings.execution_queue,
                paused_retention_ms: settings.paused_retention_ms,
                hibernate_after_ms: settings.hibernate_after_ms,
                prices: settings.prices.clone(),
            },
        });
        Self {
            host,
            stamped_store,
            counters,
            ledger,
            warm_pool,
            provisioner,
            registry,
            snapshots,
            copies: copies.map(|settings| Arc::new(Copies::new(settings, now))),
            detached,
            interruptions,
            resource_samples: Arc::new(ResourceSamples::default()),
            actors,
            tasks,
            find_image,
            host_watch: settings.host.clone(),
        }
    }

    pub fn sampler(&self) -> Sampler {
        Sampler {
            samples: Arc::clone(&self.resource_samples),
            registry: Arc::clone(&self.registry),
            host: Arc::clone(&self.host),
            stamped_store: self.stamped_store.clone(),
            counters: Arc::clone(&self.counters),
            tasks: self.tasks.clone(),
        }
    }

    pub fn watched_host(&self) -> WatchedHost {
        WatchedHost {
            host: Arc::clone(&self.host),
            ledger: Arc::clone(&self.ledger),
            registry: Arc::clone(&self.registry),
            warm_pool: Arc::clone(&self.warm_pool),
            provisioner: Arc::clone(&self.provisioner),
            stamped_store: self.stamped_store.clone(),
            tasks: self.tasks.clone(),
        }
    }

    pub fn hoarder_watch(&self) -> HoarderWatch {
        HoarderWatch {
            host: Arc::clone(&self.host),
            registry: Arc::clone(&self.registry),
            stamped_store: self.stamped_store.clone(),
        }
    }

    pub fn purge(&self, retention: Retention) -> Purge {
        Purge {
            stamped_store: self.stamped_store.clone(),
            snapshots: Arc::clone(&self.snapshots),
            counters: Arc::clone(&self.counters),
            retention,
        }
    }

    pub fn taking(&self) -> SnapshotServices {
        SnapshotServices {
            host: Arc::clone(&self.host),
            stamped_store: self.stamped_store.clone(),
            snapshots: Arc::clone(&self.snapshots),
            detached: Arc::clone(&self.detached),
            ledger: Arc::clone(&self.ledger),
            counters: Arc::clone(&self.counters),
            tasks: self.tasks.clone(),
            host_watch: self.host_watch.clone(),
        }
    }

    pub fn sweeper(&self) -> Sweeper {
        Sweeper {
            host: Arc::clone(&self.host),
            sandboxes: Arc::clone(&self.registry),
            snapshots: Arc::clone(&self.snapshots),
            detached: Arc::clone(&self.detached),
            copies: self.copies.clone(),
            interruptions: Arc::clone(&self.interruptions),
            leftovers: None,
        }
    }

    pub fn refill(&self) -> Refill {
        Refill {
            pool: Arc::clone(&self.warm_pool),
            provisioner: Arc::clone(&self.provisioner),
            find_image: Arc::clone(&self.find_image),
            counters: Arc::clone(&self.counters),
            tasks: self.tasks.clone(),
        }
    }
}
