//! The policy registry: for each address, the sandbox that has it, its policy, its learnt addresses and its open
//! connections.
//!
//! A policy can change while a connection is being decided or a name is being resolved. Every insertion into a [`Guest`]
//! therefore checks the current policy again under the lock that a change takes: an entry that the newest policy forbids
//! does not stay.

mod learnt;

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use api::{EgressPolicy, SandboxId};
use base::IgnorePoison;
use rules::{AddressVerdict, EgressRules};
use tokio_util::sync::CancellationToken;

use learnt::Learnt;

/// Minimum lifetime of a learnt address, because clients cache answers.
const MIN_TTL: Duration = Duration::from_secs(60);
const MAX_TTL: Duration = Duration::from_secs(3600);
/// Stands for an unknown name. No name is empty.
const NAMELESS: &str = "";

/// All sandboxes with a policy, by address.
#[derive(Default)]
pub struct PolicyRegistry {
    by_address: RwLock<HashMap<Ipv4Addr, Arc<Guest>>>,
}

/// The egress state of one sandbox.
pub struct Guest {
    pub id: SandboxId,
    pub address: Ipv4Addr,
    rules: RwLock<Arc<EgressRules>>,
    learnt: Mutex<Learnt>,
    open: Mutex<OpenConnections>,
    next: AtomicU64,
}

/// Why a connection passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// By the name that the client gave, to an address of that name.
    Name(String, Ipv4Addr),
    /// By its address, which an allowed name has, or which is in an allowed network.
    Address(Ipv4Addr),
}

/// The open connections.
#[derive(Default)]
struct OpenConnections {
    open: HashMap<u64, Open>,
    /// The sandbox is removed: every connection entered from now on is cut.
    removed: bool,
}

struct Open {
    /// If the policy does not decide by the address, the connection passes as long as one of these names is allowed.
    names: Vec<String>,
    address: Ipv4Addr,
    cut: CancellationToken,
}

/// A registered connection, until this is dropped.
pub struct Connection {
    guest: Arc<Guest>,
    number: u64,
    /// Cancelled when the policy no longer allows the connection, or when the sandbox is removed.
    pub cut: CancellationToken,
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.guest.open).open.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Changes under these locks cannot panic halfway.
    mutex.lock().ignore_poison()
}

impl PolicyRegistry {
    /// The sandbox at an address. `None` if it was removed or has no policy yet.
    pub fn find(&self, address: Ipv4Addr) -> Option<Arc<Guest>> {
        self.by_address.read().ignore_poison().get(&address).cloned()
    }

    /// Sets the policy of the sandbox at an address and cuts connections that it forbids. Returns the learnt addresses that
    /// are closed by it.
    pub fn admit(&self, id: &SandboxId, address: Ipv4Addr, policy: &EgressPolicy) -> Vec<Ipv4Addr> {
        let rules = Arc::new(EgressRules::new(policy));
        let mut guests = self.by_address.write().ignore_poison();
        if let Some(known) = guests.get(&address).filter(|guest| guest.id == *id).cloned() {
            drop(guests);
            return known.change(&rules);
        }
        let before = guests.insert(address, Arc::new(Guest::new(id.clone(), address, rules)));
        drop(guests);
        before.map(|guest| guest.close_all()).unwrap_or_default()
    }

    /// Removes the sandbox at an address and cuts all its connections.
    pub fn remove(&self, address: Ipv4Addr) {
        let removed = self.by_address.write().ignore_poison().remove(&address);
        if let Some(guest) = removed {
            guest.close_all();
        }
    }
}

impl Guest {
    fn new(id: SandboxId, address: Ipv4Addr, rules: Arc<EgressRules>) -> Self {
        Self {
            id,
            address,
            rules: RwLock::new(rules),
            learnt: Mutex::default(),
            open: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    /// The rules in force.
    pub fn rules(&self) -> Arc<EgressRules> {
        Arc::clone(&self.rules.read().ignore_poison())
    }

    /// Whether the sandbox was removed, or another one has its address.
    pub fn is_removed(&self) -> bool {
        lock(&self.open).removed
    }

    /// Records the addresses of a name. Returns for how long they count: not at all if the policy no longer passes the
    /// name, or if the sandbox is gone.
    pub fn learn(&self, name: &str, addresses: &[Ipv4Addr], ttl: Duration, now: Instant) -> Duration {
        let lasting = ttl.clamp(MIN_TTL, MAX_TTL);
        let mut learnt = lock(&self.learnt);
        // Checked under the lock: a policy change sets the new policy first and then removes forbidden entries under this
        // lock.
        if !self.rules().passes(name) || self.is_removed() {
            return Duration::ZERO;
        }
        learnt.add(name, addresses, now + lasting, now);
        lasting
    }

    /// Records an address that the kernel still has open from before a restart of the daemon. Its name is unknown, so it
    /// counts until it expires or the policy changes.
    pub fn recall(&self, address: Ipv4Addr, until: Instant) {
        lock(&self.learnt).add(NAMELESS, &[address], until, Instant::now());
    }

    /// Whether the name was answered with the address and the answer has not expired.
    pub fn has_learnt(&self, name: &str, address: Ipv4Addr, now: Instant) -> bool {
        lock(&self.learnt).until(name, address).is_some_and(|until| until > now)
    }

    /// Whether the name was answered with the address, even if the answer has expired: many clients keep answers for too
    /// long.
    pub fn was_answered(&self, name: &str, address: Ipv4Addr) -> bool {
        lock(&self.learnt).until(name, address).is_some()
    }

    /// Whether an unexpired answer for an allowed name had the address.
    pub fn may_reach(&self, address: Ipv4Addr, now: Instant) -> bool {
        let rules = self.rules();
        let learnt = lock(&self.learnt);
        learnt.names_of(address).any(|(name, until)| until > now && (name == NAMELESS || rules.passes(name)))
    }

    /// Registers a connection that passes. It is cut at once if the policy has changed and forbids it.
    pub fn enter(self: &Arc<Self>, passing: Passing) -> Connection {
        let cut = CancellationToken::new();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (names, address) = match passing {
            Passing::Name(name, address) => (vec![name], address),
            // Kept with the connection, which can outlive the answer.
            Passing::Address(address) => {
                (lock(&self.learnt).names_of(address).map(|(name, _)| name.to_owned()).collect(), address)
            }
        };
        let open = Open { names, address, cut: cut.clone() };
        let mut entries = lock(&self.open);
        // Checked under the lock: a policy change sets the new policy first and then goes through the connections under
        // this lock.
        let is_recalled = |name: &String| name == NAMELESS;
        if entries.removed || !open.passes(&self.rules(), is_recalled) {
            cut.cancel();
        }
        entries.open.insert(number, open);
        drop(entries);
        Connection { guest: Arc::clone(self), number, cut }
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        lock(&self.open).open.len()
    }

    fn change(&self, rules: &Arc<EgressRules>) -> Vec<Ipv4Addr> {
        *self.rules.write().ignore_poison() = Arc::clone(rules);
        let forgotten = lock(&self.learnt).forget(|name| !rules.passes(name));
        for open in lock(&self.open).open.values() {
            if !open.passes(rules, |_| false) {
                open.cut.cancel();
            }
        }
        forgotten
    }

    fn close_all(&self) -> Vec<Ipv4Addr> {
        let mut entries = lock(&self.open);
        entries.removed = true;
        entries.open.values().for_each(|open| open.cut.cancel());
        drop(entries);
        lock(&self.learnt).forget(|_| true)
    }
}

impl Open {
    /// Whether a policy passes the connection. `is_recalled`: names that pass although no policy lists them.
    fn passes(&self, rules: &EgressRules, is_recalled: impl Fn(&String) -> bool) -> bool {
        match rules.address_verdict(self.address) {
            AddressVerdict::Pass => true,
            AddressVerdict::Refuse => false,
            AddressVerdict::ByName => self.names.iter().any(|name| is_recalled(name) || rules.passes(name)),
        }
    }
}

#[cfg(test)]
mod tests;
