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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use api::{EgressPolicy, SandboxId};
use rules::Names;
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
    names: RwLock<Arc<Names>>,
    learnt: Mutex<Learnt>,
    open: Mutex<OpenConnections>,
    next: AtomicU64,
}

/// Why a connection passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// By the name that the client gave.
    Name(String),
    /// By its address, which an allowed name has.
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
    /// The connection passes as long as one of these names is allowed.
    names: Vec<String>,
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PolicyRegistry {
    pub fn find(&self, address: Ipv4Addr) -> Option<Arc<Guest>> {
        self.by_address.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    /// Sets the policy of the sandbox at an address and cuts connections that it forbids. Returns the learnt addresses that
    /// are closed by it.
    pub fn admit(&self, id: &SandboxId, address: Ipv4Addr, policy: &EgressPolicy) -> Vec<Ipv4Addr> {
        let names = Arc::new(Names::new(policy));
        let mut guests = self.by_address.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = guests.get(&address).filter(|guest| guest.id == *id).cloned() {
            drop(guests);
            return known.change(&names);
        }
        let before = guests.insert(address, Arc::new(Guest::new(id.clone(), address, names)));
        drop(guests);
        before.map(|guest| guest.close_all()).unwrap_or_default()
    }

    /// Removes the sandbox at an address and cuts all its connections.
    pub fn remove(&self, address: Ipv4Addr) {
        let removed = self.by_address.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
        if let Some(guest) = removed {
            guest.close_all();
        }
    }
}

impl Guest {
    fn new(id: SandboxId, address: Ipv4Addr, names: Arc<Names>) -> Self {
        Self {
            id,
            address,
            names: RwLock::new(names),
            learnt: Mutex::default(),
            open: Mutex::default(),
            next: AtomicU64::new(0),
        }
    }

    pub fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names.read().unwrap_or_else(PoisonError::into_inner))
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
        if !self.names().passes(name) || self.is_removed() {
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
        let names = self.names();
        let learnt = lock(&self.learnt);
        learnt.names_of(address).any(|(name, until)| until > now && (name == NAMELESS || names.passes(name)))
    }

    /// Registers a connection that passes. It is cut at once if the policy has changed and forbids it.
    pub fn enter(self: &Arc<Self>, passing: Passing) -> Connection {
        let cut = CancellationToken::new();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let names = match passing {
            Passing::Name(name) => vec![name],
            // Kept with the connection, which can outlive the answer.
            Passing::Address(address) => {
                lock(&self.learnt).names_of(address).map(|(name, _)| name.to_owned()).collect()
            }
        };
        let mut entries = lock(&self.open);
        // Checked under the lock: a policy change sets the new policy first and then goes through the connections under
        // this lock.
        let is_recalled = names.iter().any(|name| name == NAMELESS);
        if entries.removed || !(is_recalled || still_passes(&self.names(), &names)) {
            cut.cancel();
        }
        entries.open.insert(number, Open { names, cut: cut.clone() });
        drop(entries);
        Connection { guest: Arc::clone(self), number, cut }
    }

    pub fn connections(&self) -> usize {
        lock(&self.open).open.len()
    }

    fn change(&self, names: &Arc<Names>) -> Vec<Ipv4Addr> {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(names);
        let forgotten = lock(&self.learnt).forget(|name| !names.passes(name));
        for open in lock(&self.open).open.values() {
            if !still_passes(names, &open.names) {
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

fn still_passes(names: &Names, of_connection: &[String]) -> bool {
    !names.is_strict() || of_connection.iter().any(|name| names.passes(name))
}

#[cfg(test)]
mod tests;
