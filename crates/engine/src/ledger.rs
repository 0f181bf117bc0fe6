//! What of the host is given away: capacity, and ranges of user ids. Both come back when their holder is dropped.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use api::Resources;
use rules::{Capacity, Hold, Usage};

use crate::error::EngineError;

/// Counts for the whole host.
#[derive(Debug)]
pub struct Ledger {
    capacity: Capacity,
    slots: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: Usage,
    taken: BTreeSet<u32>,
    /// Where the search for a free slot begins, so that a range of ids rests before it is used again.
    next: u32,
}

/// A sandbox's share of the host.
#[derive(Debug)]
pub struct Reservation {
    ledger: Arc<Ledger>,
    resources: Resources,
    hold: Hold,
}

/// A range of user ids.
#[derive(Debug)]
pub struct SlotLease {
    ledger: Arc<Ledger>,
    pub number: u32,
}

impl Ledger {
    pub fn new(capacity: Capacity, slots: u32) -> Self {
        Self { capacity, slots, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves numbers that are still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    pub fn used(&self) -> Usage {
        self.state().used
    }

    pub fn reserve(self: &Arc<Self>, resources: Resources) -> Result<Reservation, EngineError> {
        let mut state = self.state();
        state.used = self.capacity.admit(state.used, resources)?;
        Ok(Reservation { ledger: Arc::clone(self), resources, hold: Hold::Running })
    }

    /// Whether it would fit if nothing else were there.
    pub fn could_fit(&self, resources: Resources) -> bool {
        self.capacity.admit(Usage::default(), resources).is_ok()
    }

    /// For a sandbox that was found and exists already, whether there is room or not.
    pub fn adopt(self: &Arc<Self>, resources: Resources, hold: Hold) -> Reservation {
        let mut state = self.state();
        state.used = state.used.plus(Usage::of(resources, hold));
        Reservation { ledger: Arc::clone(self), resources, hold }
    }

    pub fn lease_slot(self: &Arc<Self>) -> Result<SlotLease, EngineError> {
        let mut state = self.state();
        let start = state.next;
        let free =
            (start..self.slots).chain(0..start.min(self.slots)).find(|number| !state.taken.contains(number));
        let number = free.ok_or(EngineError::NoSlot(self.slots))?;
        state.taken.insert(number);
        state.next = number + 1;
        Ok(SlotLease { ledger: Arc::clone(self), number })
    }

    /// For a sandbox that was found and has its range already.
    pub fn adopt_slot(self: &Arc<Self>, number: u32) -> SlotLease {
        self.state().taken.insert(number);
        SlotLease { ledger: Arc::clone(self), number }
    }
}

impl Reservation {
    /// The share of a sandbox that is now paused, or stopped. Always possible: it holds no more than before.
    pub fn lower(&mut self, hold: Hold) {
        let mut state = self.ledger.state();
        state.used = state.used.release(self.resources, self.hold).plus(Usage::of(self.resources, hold));
        self.hold = hold;
    }

    /// The share of a sandbox that is to run again, if there is room.
    pub fn raise(&mut self) -> Result<(), EngineError> {
        let mut state = self.ledger.state();
        state.used = self.ledger.capacity.resume(state.used, self.resources, self.hold)?;
        self.hold = Hold::Running;
        Ok(())
    }

    /// The share of a sandbox that is given another size, if there is room.
    pub fn resize(&mut self, resources: Resources) -> Result<(), EngineError> {
        let mut state = self.ledger.state();
        let without = state.used.release(self.resources, self.hold);
        state.used = self.ledger.capacity.admit(without, resources)?;
        self.resources = resources;
        Ok(())
    }

    /// Gives the share back before its holder is gone. Nothing is left to give back then.
    pub fn release(&mut self) {
        let mut state = self.ledger.state();
        state.used = state.used.release(self.resources, self.hold);
        self.resources = Resources { cpu: 0, memory_mb: 0, disk_mb: 0 };
    }

    pub fn hold(&self) -> Hold {
        self.hold
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release();
    }
}

impl SlotLease {
    /// Never gives the range out again in this daemon's life: something on the host may still use it.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for SlotLease {
    fn drop(&mut self) {
        self.ledger.state().taken.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Resources = Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };

    fn ledger() -> Arc<Ledger> {
        Arc::new(Ledger::new(Capacity { cpu: 4, memory_mb: 4096, disk_mb: 10_240 }, 3))
    }

    #[test]
    fn what_is_dropped_comes_back() {
        let ledger = ledger();
        let first = ledger.reserve(SIZE).unwrap();
        let second = ledger.reserve(SIZE).unwrap();
        assert!(matches!(ledger.reserve(SIZE), Err(EngineError::NoCapacity(_))));
        drop(first);
        ledger.reserve(SIZE).unwrap();
        drop(second);
        assert_eq!(ledger.used(), Usage::default());
    }

    #[test]
    fn a_paused_one_lends_its_processors_and_may_not_get_them_back() {
        let ledger = Arc::new(Ledger::new(Capacity { cpu: 2, memory_mb: 9000, disk_mb: 90_000 }, 3));
        let mut paused = ledger.reserve(SIZE).unwrap();
        paused.lower(Hold::Paused);
        let other = ledger.reserve(SIZE).unwrap();
        assert!(paused.raise().is_err());
        drop(other);
        paused.raise().unwrap();
        assert_eq!(ledger.used().cpu, 2);
    }

    #[test]
    fn slots_are_given_out_once_and_rest_before_they_come_again() {
        let ledger = ledger();
        let first = ledger.lease_slot().unwrap();
        drop(first);
        let taken: Vec<_> = (0..3).map(|_| ledger.lease_slot().unwrap()).collect();
        assert_eq!(taken.iter().map(|lease| lease.number).collect::<Vec<_>>(), [1, 2, 0]);
        assert!(matches!(ledger.lease_slot(), Err(EngineError::NoSlot(3))));
    }
}
