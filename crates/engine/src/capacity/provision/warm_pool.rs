//! The warm pool: provisioned sandboxes without an owner, by image and isolation. `refill` provisions them; a create takes one that matches.
//!
//! While several accounts create from a pool, its last sandbox is not for the account that took the one before: an account that creates
//! as fast as it can leaves it to the next account.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use api::{Isolation, Resources, SandboxId};
use base::IgnorePoison;
use rules::CapacityWarning;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::capacity::provision::ProvisionedSandbox;
use crate::template::Template;

const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(60);
/// How long an account counts as one that creates, since its last create.
const ACTIVE: Duration = Duration::from_secs(10 * 60);

/// Which creates a warm sandbox serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    pub image: String,
    pub isolation: Isolation,
}

/// The number and size of the warm sandboxes of an image and an isolation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolTarget {
    pub count: u32,
    pub resources: Resources,
}

pub struct WarmPool {
    pools: Mutex<HashMap<PoolKey, Pool>>,
    /// Signals each sandbox that was provisioned for the pool or could not be provisioned.
    delivered: watch::Sender<()>,
    /// Notified when the pool may want more sandboxes.
    wanted: Notify,
    capacity_warning: Mutex<CapacityWarning<PoolKey>>,
}

struct Pool {
    target: PoolTarget,
    ready: VecDeque<ProvisionedSandbox>,
    /// The number of sandboxes that are being provisioned.
    provisioning: u32,
    /// The time of the next attempt after a failure.
    not_before: Option<Instant>,
    /// The delay after the next failure.
    backoff: Duration,
    /// The number of the last sandbox that was provisioned for it, among those of all pools.
    turn: u64,
    creators: Creators,
}

/// Who creates from a pool.
#[derive(Default)]
struct Creators {
    /// With the time of the last create. Only those that count as active.
    active: HashMap<String, Instant>,
    /// Who took the last sandbox.
    last: Option<String>,
}

/// The fill level of the pool of one image and isolation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolState {
    pub key: PoolKey,
    pub ready: u32,
    pub target: u32,
}

impl WarmPool {
    pub fn new(targets: &BTreeMap<PoolKey, PoolTarget>) -> Self {
        let pool = |target: &PoolTarget| Pool {
            target: *target,
            ready: VecDeque::new(),
            provisioning: 0,
            not_before: None,
            backoff: FIRST_BACKOFF,
            turn: 0,
            creators: Creators::default(),
        };
        let pools = targets.iter().map(|(key, target)| (key.clone(), pool(target))).collect();
        Self {
            pools: Mutex::new(pools),
            delivered: watch::channel(()).0,
            wanted: Notify::new(),
            capacity_warning: Mutex::default(),
        }
    }

    /// The decision about warnings, for the refill.
    pub fn capacity_warning(&self) -> MutexGuard<'_, CapacityWarning<PoolKey>> {
        self.capacity_warning.lock().ignore_poison()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PoolKey, Pool>> {
        // A panic while the lock is held leaves valid pools.
        self.pools.lock().ignore_poison()
    }

    pub fn state(&self) -> Vec<PoolState> {
        let pools = self.lock();
        let mut state: Vec<_> = pools
            .iter()
            .map(|(key, pool)| PoolState {
                key: key.clone(),
                ready: u32::try_from(pool.ready.len()).unwrap_or(u32::MAX),
                target: pool.target.count,
            })
            .collect();
        state.sort_by(|left, right| left.key.cmp(&right.key));
        state
    }

    /// A pool that is below its target, with the size of the missing sandbox. Pools take turns, so that creates from one do not keep
    /// another empty. Counts the sandbox as being provisioned.
    pub fn next_to_provision(&self) -> Option<(PoolKey, PoolTarget)> {
        let mut pools = self.lock();
        let now = Instant::now();
        let last_turn = pools.values().map(|pool| pool.turn).max()?;
        let lacking = pools.iter_mut().filter(|(_, pool)| {
            pool.ready.len() < pool.target.count.saturating_sub(pool.provisioning) as usize
                && pool.not_before.is_none_or(|at| at <= now)
        });
        let (key, pool) = lacking.min_by_key(|(_, pool)| pool.turn)?;
        pool.turn = last_turn + 1;
        pool.provisioning += 1;
        Some((key.clone(), pool.target))
    }

    /// Adds a sandbox from [`Self::next_to_provision`]; `None` if it could not be provisioned.
    pub fn deliver(&self, key: &PoolKey, sandbox: Option<ProvisionedSandbox>) {
        if let Some(pool) = self.lock().get_mut(key) {
            pool.provisioning = pool.provisioning.saturating_sub(1);
            if sandbox.is_some() {
                (pool.not_before, pool.backoff) = (None, FIRST_BACKOFF);
            } else {
                // The delay keeps a pool that fails from blocking the others.
                pool.not_before = Some(Instant::now() + pool.backoff);
                pool.backoff = (pool.backoff * 2).min(LONGEST_BACKOFF);
            }
            pool.ready.extend(sandbox);
        }
        self.delivered.send_replace(());
        // The other refill task may be waiting for the same delivery.
        self.wanted.notify_one();
    }

    /// Signals the next delivery; `None` if no sandbox is being provisioned.
    pub fn next_delivery(&self) -> Option<watch::Receiver<()>> {
        let pools = self.lock();
        pools.values().any(|pool| pool.provisioning > 0).then(|| self.delivered.subscribe())
    }

    pub fn is_empty(&self) -> bool {
        self.lock().values().all(|pool| pool.ready.is_empty())
    }

    /// Returns an unused sandbox to the pool. Gives it back if the pool is full.
    pub fn put_back(&self, sandbox: ProvisionedSandbox) -> Option<ProvisionedSandbox> {
        match self.lock().get_mut(&key(&sandbox.template, sandbox.spec.isolation)) {
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

    /// Takes those of the ready sandboxes that are among these.
    pub fn take_of(&self, ids: &HashSet<SandboxId>) -> Vec<ProvisionedSandbox> {
        let mut taken = Vec::new();
        for pool in self.lock().values_mut() {
            let (found, rest): (Vec<_>, _) =
                pool.ready.drain(..).partition(|sandbox| ids.contains(&sandbox.spec.id));
            pool.ready = VecDeque::from(rest);
            taken.extend(found);
        }
        taken
    }

    /// Takes the ready sandboxes of the images that are not on this host any more.
    pub fn take_of_missing(&self, is_on_host: impl Fn(&str) -> bool) -> Vec<ProvisionedSandbox> {
        // Looks for images without the lock, which creates need.
        let filled = self.state().into_iter().filter(|pool| pool.ready > 0).map(|pool| pool.key);
        let missing: Vec<PoolKey> = filled.filter(|key| !is_on_host(&key.image)).collect();
        let (mut taken, mut pools) = (Vec::new(), self.lock());
        for key in &missing {
            taken.extend(pools.get_mut(key).into_iter().flat_map(|pool| pool.ready.drain(..)));
        }
        taken
    }

    /// Takes a sandbox of exactly this image and isolation that can have this size, if the account may have it. Also returns stale
    /// sandboxes, which no create will match, for the caller to discard.
    pub fn take_matching(
        &self,
        account: &str,
        template: &Template,
        isolation: Isolation,
        size: Resources,
    ) -> (Option<ProvisionedSandbox>, Vec<ProvisionedSandbox>) {
        let mut stale = Vec::new();
        let mut pools = self.lock();
        let pool = pools.get_mut(&key(template, isolation));
        let Some(pool) = pool.filter(|pool| fits(pool.target.resources, size, isolation)) else {
            return (None, stale);
        };
        if !pool.creators.may_take(account, pool.ready.len(), Instant::now()) {
            return (None, stale);
        }
        let found = std::iter::from_fn(|| pool.ready.pop_front()).find_map(|sandbox| {
            if sandbox.template == *template && !sandbox.agent.is_closed() {
                return Some(sandbox);
            }
            stale.push(sandbox);
            None
        });
        if found.is_some() {
            pool.creators.last = Some(account.to_owned());
        }
        drop(pools);
        (found, stale)
    }

    /// Makes the refill check whether the pool wants more sandboxes.
    pub fn request_refill(&self) {
        self.wanted.notify_one();
    }

    pub async fn refill_requested(&self) {
        self.wanted.notified().await;
    }
}

impl Creators {
    /// Counts a create of the account. Whether it may take one of the ready sandboxes.
    fn may_take(&mut self, account: &str, ready: usize, now: Instant) -> bool {
        self.active.retain(|_, at| now.duration_since(*at) < ACTIVE);
        match self.active.get_mut(account) {
            Some(at) => *at = now,
            None => drop(self.active.insert(account.to_owned(), now)),
        }
        let is_shared = self.active.len() > 1;
        ready > 1 || !is_shared || self.last.as_deref() != Some(account)
    }
}

fn key(template: &Template, isolation: Isolation) -> PoolKey {
    PoolKey { image: template.name.clone(), isolation }
}

/// Whether a sandbox of the pool can get this size: its disk has a fixed size, and gVisor shows the memory that it had at its start.
fn fits(pooled: Resources, wanted: Resources, isolation: Isolation) -> bool {
    let is_shown = isolation == Isolation::Gvisor;
    pooled.disk_mb == wanted.disk_mb && (!is_shown || pooled.memory_mb == wanted.memory_mb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_sandbox_is_left_to_another_account_that_creates() {
        let (mut creators, now) = (Creators::default(), Instant::now());
        let take = |creators: &mut Creators, account: &str, ready, now| {
            let may_take = creators.may_take(account, ready, now);
            if may_take {
                creators.last = Some(account.to_owned());
            }
            may_take
        };
        // An account that is alone takes all.
        assert!(take(&mut creators, "fast", 2, now) && take(&mut creators, "fast", 1, now));
        assert!(take(&mut creators, "slow", 1, now));
        assert!(take(&mut creators, "fast", 2, now));
        for _ in 0..10 {
            assert!(!take(&mut creators, "fast", 1, now));
        }
        assert!(take(&mut creators, "slow", 1, now));
        // An account that has created nothing for long keeps nothing from others.
        assert!(take(&mut creators, "fast", 1, now) && !take(&mut creators, "fast", 1, now));
        assert!(take(&mut creators, "fast", 1, now + ACTIVE));
    }

    #[test]
    fn disks_are_fixed_and_so_is_the_memory_under_gvisor() {
        let pooled = Resources { cpu: 1, memory_mb: 512, disk_mb: 1024 };
        for isolation in Isolation::ALL {
            assert!(fits(pooled, Resources { cpu: 4, ..pooled }, isolation));
            assert!(!fits(pooled, Resources { disk_mb: 2048, ..pooled }, isolation));
        }
        let larger = Resources { memory_mb: 1024, ..pooled };
        assert!(fits(pooled, larger, Isolation::Container));
        assert!(!fits(pooled, larger, Isolation::Gvisor));
    }
}
