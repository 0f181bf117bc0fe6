//! The pool's images: sandboxes that run and belong to nobody yet. A container only; who fills it and who takes from it is
//! said in `pool` and `create`.

pub mod refill;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use api::Resources;
use driver::SandboxSpec;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::ledger::{Reservation, SlotLease};
use crate::link::Agent;
use crate::settings::{PoolTarget, Template};

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);

/// A sandbox that runs and belongs to nobody.
pub struct ProvisionedSandbox {
    pub spec: SandboxSpec,
    pub resources: Resources,
    pub template: Template,
    pub agent: Agent,
    pub reservation: Reservation,
    pub slot: SlotLease,
}

pub struct WarmPool {
    images: Mutex<HashMap<String, ImagePool>>,
    /// Rung when what was provisioning has come, or will not.
    delivered: watch::Sender<()>,
    /// Rung when a pool may want more.
    pub wanted: Notify,
}

struct ImagePool {
    target: PoolTarget,
    ready: VecDeque<ProvisionedSandbox>,
    /// Being made now.
    provisioning: u32,
    /// After a failure: when to try again, and how long to wait if that fails too.
    not_before: Option<Instant>,
    backoff: Duration,
}

/// How full a pool is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    pub image: String,
    pub ready: u32,
    pub target: u32,
}

impl WarmPool {
    pub fn new(targets: &BTreeMap<String, PoolTarget>) -> Self {
        let pool = |target: &PoolTarget| ImagePool {
            target: *target,
            ready: VecDeque::new(),
            provisioning: 0,
            not_before: None,
            backoff: FIRST_BACKOFF,
        };
        let images = targets.iter().map(|(image, target)| (image.clone(), pool(target))).collect();
        Self { images: Mutex::new(images), delivered: watch::channel(()).0, wanted: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ImagePool>> {
        // A panic elsewhere leaves images that are each whole.
        self.images.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state(&self) -> Vec<PoolState> {
        let images = self.lock();
        let mut state: Vec<_> = images
            .iter()
            .map(|(image, pool)| PoolState {
                image: image.clone(),
                ready: u32::try_from(pool.ready.len()).unwrap_or(u32::MAX),
                target: pool.target.count,
            })
            .collect();
        state.sort_by(|left, right| left.image.cmp(&right.image));
        state
    }

    /// A pool that wants one more, and for which image and size. Counts it as provisioning.
    pub fn next_to_provision(&self) -> Option<(String, PoolTarget)> {
        let mut images = self.lock();
        let now = Instant::now();
        let (image, pool) = images.iter_mut().find(|(_, pool)| {
            pool.ready.len() < pool.target.count.saturating_sub(pool.provisioning) as usize
                && pool.not_before.is_none_or(|at| at <= now)
        })?;
        pool.provisioning += 1;
        Some((image.clone(), pool.target))
    }

    pub fn deliver(&self, image: &str, made: Option<ProvisionedSandbox>) {
        if let Some(pool) = self.lock().get_mut(image) {
            pool.provisioning = pool.provisioning.saturating_sub(1);
            if made.is_some() {
                (pool.not_before, pool.backoff) = (None, FIRST_BACKOFF);
            } else {
                // A pool that cannot be filled keeps no other from being filled.
                pool.not_before = Some(Instant::now() + pool.backoff);
                pool.backoff = (pool.backoff * 2).min(LONGEST_BACKOFF);
            }
            pool.ready.extend(made);
        }
        self.delivered.send_replace(());
    }

    /// Tells of the next delivery, where one is to come.
    pub fn delivery(&self) -> Option<watch::Receiver<()>> {
        let images = self.lock();
        images.values().any(|pool| pool.provisioning > 0).then(|| self.delivered.subscribe())
    }

    pub fn is_empty(&self) -> bool {
        self.lock().values().all(|pool| pool.ready.is_empty())
    }

    /// A sandbox that was taken and not used. Answered if there is no place for it any more.
    pub fn put_back(&self, sandbox: ProvisionedSandbox) -> Option<ProvisionedSandbox> {
        match self.lock().get_mut(&sandbox.template.name) {
            Some(pool) if pool.ready.len() < pool.target.count as usize => {
                pool.ready.push_front(sandbox);
                None
            }
            _ => Some(sandbox),
        }
    }

    pub fn take_any(&self) -> Option<ProvisionedSandbox> {
        self.lock().values_mut().find_map(|pool| pool.ready.pop_front())
    }

    /// Takes a sandbox that fits: of this very image and with a disk of the wanted size; the rest can still be changed.
    /// Members that no create will ever fit come with it, to be discarded.
    pub fn take_matching(
        &self,
        template: &Template,
        disk_mb: u32,
    ) -> (Option<ProvisionedSandbox>, Vec<ProvisionedSandbox>) {
        let mut stale = Vec::new();
        let mut images = self.lock();
        let Some(pool) =
            images.get_mut(&template.name).filter(|pool| pool.target.resources.disk_mb == disk_mb)
        else {
            return (None, stale);
        };
        let found = std::iter::from_fn(|| pool.ready.pop_front()).find_map(|sandbox| {
            if sandbox.template == *template && !sandbox.agent.is_closed() {
                return Some(sandbox);
            }
            stale.push(sandbox);
            None
        });
        (found, stale)
    }
}
