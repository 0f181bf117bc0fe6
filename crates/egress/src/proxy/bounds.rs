//! How many connections there may be: undecided ones of a sandbox, open ones of a sandbox, and all together, so that the API
//! always has descriptors left.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Of one sandbox, before it is known where they go.
const UNDECIDED_MAX: usize = 512;
/// Of one sandbox.
const OPEN_MAX: usize = 8192;
/// Of one sandbox, that are read as HTTP to their end: these hold memory.
const HTTP_MAX: usize = 1024;
/// One sandbox may have so many times what is left for all: the last places are never for one that has many already.
const SHARE: usize = 4;
/// To the client and to the server.
const DESCRIPTORS_EACH: u64 = 2;

pub struct Bounds {
    all_max: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    by_guest: HashMap<Ipv4Addr, Count>,
}

#[derive(Default, Clone, Copy)]
struct Count {
    open: usize,
    undecided: usize,
    http: usize,
}

/// A connection's place, until it is dropped.
pub struct Place {
    bounds: Arc<Bounds>,
    guest: Ipv4Addr,
    undecided: bool,
    http: bool,
}

impl Bounds {
    /// The proxy takes three of four descriptors of the process at most.
    pub fn of_process() -> Arc<Self> {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let connections = limit.unwrap_or(1 << 20) / 4 * 3 / DESCRIPTORS_EACH;
        Self::new(usize::try_from(connections).unwrap_or(usize::MAX))
    }

    pub fn new(all_max: usize) -> Arc<Self> {
        Arc::new(Self { all_max, held: Mutex::default() })
    }

    /// A place for one more connection of a guest, if there is one.
    pub fn take(self: &Arc<Self>, guest: Ipv4Addr) -> Option<Place> {
        let mut held = self.lock();
        let count = held.by_guest.get(&guest).copied().unwrap_or_default();
        let share = (self.all_max - held.all).saturating_mul(SHARE);
        if count.open >= OPEN_MAX.min(share) || count.undecided >= UNDECIDED_MAX {
            return None;
        }
        held.all += 1;
        let count = Count { open: count.open + 1, undecided: count.undecided + 1, ..count };
        held.by_guest.insert(guest, count);
        drop(held);
        Some(Place { bounds: Arc::clone(self), guest, undecided: true, http: false })
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// It is known where the connection goes.
    pub fn decided(&mut self) {
        if std::mem::take(&mut self.undecided) {
            self.with_count(|count| count.undecided -= 1);
        }
    }

    /// It is not known again. `false` if there are too many such.
    pub fn undecided(&mut self) -> bool {
        let room = self.with_count(|count| {
            let room = count.undecided < UNDECIDED_MAX;
            count.undecided += usize::from(room);
            room
        });
        self.undecided = room;
        room
    }

    /// It is read as HTTP from here on. `false` if there are too many such.
    pub fn read_as_http(&mut self) -> bool {
        self.http = self.with_count(|count| {
            let room = count.http < HTTP_MAX;
            count.http += usize::from(room);
            room
        });
        self.http
    }

    fn with_count<T>(&self, change: impl FnOnce(&mut Count) -> T) -> T {
        change(self.bounds.lock().by_guest.entry(self.guest).or_default())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.decided();
        let mut held = self.bounds.lock();
        held.all -= 1;
        if let Some(count) = held.by_guest.get_mut(&self.guest) {
            count.open -= 1;
            count.http -= usize::from(self.http);
            if count.open == 0 {
                held.by_guest.remove(&self.guest);
            }
        }
    }
}

#[cfg(test)]
mod tests;
