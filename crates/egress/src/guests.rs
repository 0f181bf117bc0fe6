//! The book: which sandbox is behind an address, what its policy is, what it has learnt, and what it has open.
//!
//! A policy changes while connections are being decided and names are being answered. What is entered in a [`Guest`] is
//! therefore looked at again once it is in: whoever comes first, an entry that the newest policy forbids does not stay.

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

/// An answer counts as long as its time to live, and at least so long: clients keep what they were told.
const LEAST_TTL: Duration = Duration::from_secs(60);
const LONGEST_TTL: Duration = Duration::from_secs(3600);
/// Stands for a name that is not known any more. No name is empty.
const NAMELESS: &str = "";

/// All sandboxes that have a policy, by their address.
#[derive(Default)]
pub struct Guests {
    by_address: RwLock<HashMap<Ipv4Addr, Arc<Guest>>>,
}

/// One sandbox.
pub struct Guest {
    pub id: SandboxId,
    pub address: Ipv4Addr,
    names: RwLock<Arc<Names>>,
    learnt: Mutex<Learnt>,
    open: Mutex<Book>,
    next: AtomicU64,
}

/// What a connection passes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Passing {
    /// The name that its client gave.
    Name(String),
    /// The address that it goes to, which an allowed name has.
    Address(Ipv4Addr),
}

/// What is open.
#[derive(Default)]
struct Book {
    open: HashMap<u64, Open>,
    /// The sandbox is no more: nothing that is entered stays.
    gone: bool,
}

struct Open {
    /// The names that it passes by: one of them has to be allowed.
    names: Vec<String>,
    cut: CancellationToken,
}

/// A connection in its guest's book, for as long as this is held.
pub struct Connection {
    guest: Arc<Guest>,
    number: u64,
    /// Cancelled when a new policy allows it no more, or the sandbox is gone.
    pub cut: CancellationToken,
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.guest.open).open.remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each of the books is whole between two statements.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guests {
    pub fn find(&self, address: Ipv4Addr) -> Option<Arc<Guest>> {
        self.by_address.read().unwrap_or_else(PoisonError::into_inner).get(&address).cloned()
    }

    /// Puts a policy in force for whoever is behind an address, and cuts what it forbids. Answers the addresses that are not
    /// to be reached any more.
    pub fn admit(&self, id: &SandboxId, address: Ipv4Addr, policy: &EgressPolicy) -> Vec<Ipv4Addr> {
        let names = Arc::new(Names::new(policy));
        let mut guests = self.by_address.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = guests.get(&address).filter(|guest| guest.id == *id).cloned() {
            drop(guests);
            return known.change(&names);
        }
        let before = guests.insert(address, Arc::new(Guest::new(id.clone(), address, names)));
        drop(guests);
        before.map(|guest| guest.leave()).unwrap_or_default()
    }

    /// The sandbox behind an address is gone: everything of it is cut.
    pub fn remove(&self, address: Ipv4Addr) {
        let gone = self.by_address.write().unwrap_or_else(PoisonError::into_inner).remove(&address);
        if let Some(guest) = gone {
            guest.leave();
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

    /// Whether the sandbox has been removed, or another has taken its address.
    pub fn is_gone(&self) -> bool {
        lock(&self.open).gone
    }

    /// An answer that the sandbox was given, or that was found for it. Says for how long its addresses count: not at all if
    /// the policy has changed meanwhile and passes the name no more, or the sandbox is gone.
    pub fn learn(&self, name: &str, addresses: &[Ipv4Addr], ttl: Duration, now: Instant) -> Duration {
        let lasting = ttl.clamp(LEAST_TTL, LONGEST_TTL);
        let mut learnt = lock(&self.learnt);
        // Asked under the lock: a change of policy forgets under it, after the new one is in force.
        if !self.names().passes(name) || self.is_gone() {
            return Duration::ZERO;
        }
        learnt.add(name, addresses, now + lasting, now);
        lasting
    }

    /// An address that the kernel still lets the sandbox reach from before the daemon's restart. By which name is not known any
    /// more, so it counts for none, and no longer than the policy stays as it is.
    pub fn recall(&self, address: Ipv4Addr, until: Instant) {
        lock(&self.learnt).add(NAMELESS, &[address], until, Instant::now());
    }

    /// Whether a name was answered with an address, and the answer still counts.
    pub fn has_learnt(&self, name: &str, address: Ipv4Addr, now: Instant) -> bool {
        lock(&self.learnt).until(name, address).is_some_and(|until| until > now)
    }

    /// Whether a name was answered with an address at some time that is not long forgotten: many clients keep an answer for
    /// longer than they should.
    pub fn was_told(&self, name: &str, address: Ipv4Addr) -> bool {
        lock(&self.learnt).until(name, address).is_some()
    }

    /// Whether an address is one that any allowed name was answered with.
    pub fn may_reach(&self, address: Ipv4Addr, now: Instant) -> bool {
        let names = self.names();
        let learnt = lock(&self.learnt);
        learnt.names_of(address).any(|(name, until)| until > now && (name == NAMELESS || names.passes(name)))
    }

    /// Enters a connection that is let through. It is cut at once if the policy has changed meanwhile.
    pub fn enter(self: &Arc<Self>, passing: Passing) -> Connection {
        let cut = CancellationToken::new();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let names = match passing {
            Passing::Name(name) => vec![name],
            // They are kept with the connection, which may well last longer than the answer.
            Passing::Address(address) => {
                lock(&self.learnt).names_of(address).map(|(name, _)| name.to_owned()).collect()
            }
        };
        let mut book = lock(&self.open);
        // Asked under the lock: a change of policy looks through the book under it, after the new one is in force.
        let is_recalled = names.iter().any(|name| name == NAMELESS);
        if book.gone || !(is_recalled || still_passes(&self.names(), &names)) {
            cut.cancel();
        }
        book.open.insert(number, Open { names, cut: cut.clone() });
        drop(book);
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

    fn leave(&self) -> Vec<Ipv4Addr> {
        let mut book = lock(&self.open);
        book.gone = true;
        book.open.values().for_each(|open| open.cut.cancel());
        drop(book);
        lock(&self.learnt).forget(|_| true)
    }
}

fn still_passes(names: &Names, of_connection: &[String]) -> bool {
    !names.is_strict() || of_connection.iter().any(|name| names.passes(name))
}

#[cfg(test)]
mod tests;
