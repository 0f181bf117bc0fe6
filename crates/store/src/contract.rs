//! The trait that every store implements; `conformance` says in tests what its sentences mean.

use api::SandboxId;
use async_trait::async_trait;
use rules::TimeMs;
use tokio::sync::watch;

use crate::{
    Batch, Committed, Event, EventFilter, EventListing, EventPage, Filter, KeyRecord, Listing, NewEvent,
    Page, Remembered, SandboxRecord, StoreError, Topic,
};

/// Durable memory. Calls come from any task at any time; a future that is dropped half-way may or may not have written.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Makes all writes of the batch, in their order, or none. `Ok` means that they outlive a power loss, and that every
    /// read that begins afterwards sees them.
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError>;

    /// A batch of one record.
    async fn put(&self, record: SandboxRecord) -> Result<(), StoreError> {
        self.commit(Batch::new().put(record)).await.map(|_| ())
    }

    async fn get(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError>;

    /// Every sandbox that is not terminated, by id; for recovery.
    async fn living(&self) -> Result<Vec<SandboxRecord>, StoreError>;

    async fn list(&self, filter: &Filter, page: Page) -> Result<Listing, StoreError>;

    /// The events of a sandbox with a sequence above `after`, oldest first; at most `limit` and [`crate::MAX_PAGE`].
    async fn events(&self, sandbox: &SandboxId, after: u64, limit: u32) -> Result<Vec<Event>, StoreError>;

    /// Keeps an event without waiting for the disk. `Ok` means that it outlives this process however that ends, and a power
    /// loss some moments later; every commit that begins afterwards comes after it, and reads see it soon.
    fn note(&self, event: NewEvent) -> Result<(), StoreError>;

    /// A page of events and their total. Events are numbered in the order in which they can be seen: below the number of one
    /// that was read nothing new ever appears.
    async fn list_events(&self, filter: &EventFilter, page: EventPage) -> Result<EventListing, StoreError>;

    /// The first events that fit with a number above `after`, oldest first, and the number up to which there are no others.
    async fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<Event>, u64), StoreError>;

    /// The number of the last event of all that was ever given.
    async fn last_event(&self) -> Result<u64, StoreError>;

    /// Changes after every event of the topic that reads can see. Who follows and then reads misses none.
    fn follow(&self, topic: Topic) -> watch::Receiver<u64>;

    /// All keys, revoked ones too, oldest first.
    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;

    /// A number that is greater after every change of a key, whichever process made it. Who reads it before the keys, and
    /// reads them again when it is another, misses none.
    async fn keys_version(&self) -> Result<u64, StoreError>;

    /// The answer kept under an idempotency key. It may be over: [`Remembered::is_over`] tells.
    async fn remembered(
        &self,
        account: &str,
        endpoint: &str,
        key: &str,
    ) -> Result<Option<Remembered>, StoreError>;

    /// Removes sandboxes terminated before `before` with their events, and events from before it whose sandbox has no
    /// record. Answers how many sandboxes went. Other calls get their turn in between; when this one fails or is dropped,
    /// a part is done.
    async fn purge(&self, before: TimeMs) -> Result<u64, StoreError>;

    /// Removes kept answers that are over. Answers how many went; else as [`Store::purge`].
    async fn purge_remembered(&self, now: TimeMs) -> Result<u64, StoreError>;

    /// Finishes what is under way and lets the files go; afterwards every call fails with [`StoreError::Closed`].
    async fn close(&self);
}
