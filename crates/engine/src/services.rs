//! The services of one engine and how they are wired. Each part of the engine keeps the handles that it uses; only the entry points
//! (`engine`, `sandbox`, `create`, `recover`, `metrics`, `pressure`) see all of them.

use std::sync::Arc;

use driver::Driver;
use net::Network;
use store::Store;
use tokio::sync::mpsc;

use crate::actor::{ActorContext, ActorLimits};
use crate::clock::Clock;
use crate::counters::Counters;
use crate::detached::ExecutionRegistry;
use crate::host::Host;
use crate::host_watch::HostWatch;
use crate::interruptions::Interruptions;
use crate::ledger::Ledger;
use crate::provision::Provisioner;
use crate::registry::SandboxRegistry;
use crate::resource_samples::{ResourceSamples, Sampler};
use crate::settings::{EngineSettings, FindImage, SnapshotCopies};
use crate::snapshots::{Copies, SnapshotRegistry, Sweeper};
use crate::stamped_store::StampedStore;
use crate::tasks::Tasks;
use crate::timer::Timer;
use crate::warm_pool::WarmPool;
use crate::warm_pool_refill::Refill;

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
            tasks: self.tasks.clone(),
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
