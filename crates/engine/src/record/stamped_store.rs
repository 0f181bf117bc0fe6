//! The store of records and events, with the clock that stamps them.

use std::sync::Arc;

use rules::TimeMs;
use store::{Batch, NewEvent, Store, StoreError};

use crate::counters::Counters;
use crate::record::clock::Clock;

/// Clones write to the same store.
#[derive(Clone)]
pub struct StampedStore {
    store: Arc<dyn Store>,
    clock: Clock,
    counters: Arc<Counters>,
}

impl StampedStore {
    pub fn new(store: Arc<dyn Store>, clock: Clock, counters: Arc<Counters>) -> Self {
        Self { store, clock, counters }
    }

    pub fn clock(&self) -> Clock {
        self.clock
    }

    pub fn now(&self) -> TimeMs {
        self.clock.now()
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// Commits a batch and waits for the disk.
    pub async fn commit(&self, batch: Batch) -> Result<(), StoreError> {
        self.store.commit(batch).await.map(drop)
    }

    /// Appends an event without waiting for the disk. An event that cannot be appended is counted and logged.
    pub fn append(&self, event: NewEvent) {
        if let Err(error) = self.store.append(event) {
            self.counters.events_lost.add(1);
            tracing::error!(%error, "an event is lost");
        }
    }
}
