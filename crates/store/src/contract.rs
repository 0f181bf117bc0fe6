//! The trait that every store implements. The suite `conformance` tests each statement.

use api::SandboxId;
use async_trait::async_trait;
use rules::TimeMs;
use tokio::sync::watch;

use crate::{
    Batch, BegunWork, Committed, Event, EventFilter, EventListing, EventPage, Filter, IdempotencyRecord,
    KeyRecord, Listing, NewEvent, PageRange, SandboxRecord, SnapshotRecord, StoreError, StoredBytes,
    TemplateRecord, Topic,
};

/// Durable storage. Calls may be concurrent; those of one account do not delay those of others by more than a few of them. A
/// future that is dropped early may or may not have written.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies all writes of the batch in order, or none. After `Ok` they survive a power loss, and reads that begin
    /// afterwards see them.
    async fn commit(&self, batch: Batch) -> Result<Committed, StoreError>;

    /// Commits one record.
    async fn put(&self, record: SandboxRecord) -> Result<(), StoreError> {
        self.commit(Batch::new().put(record)).await.map(|_| ())
    }

    async fn get(&self, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError>;

    /// As [`Store::get`], for a request of an account. The record may be one of another account.
    async fn get_for(&self, _account: &str, id: &SandboxId) -> Result<Option<SandboxRecord>, StoreError> {
        self.get(id).await
    }

    /// All sandboxes that are not terminated, ordered by id; for recovery.
    async fn living(&self) -> Result<Vec<SandboxRecord>, StoreError>;

    async fn list(&self, filter: &Filter, page: PageRange) -> Result<Listing, StoreError>;

    /// The events of a sandbox with a sequence above `after`, oldest first; at most `limit` and [`crate::MAX_PAGE`].
    async fn events(&self, sandbox: &SandboxId, after: u64, limit: u32) -> Result<Vec<Event>, StoreError>;

    /// Appends an event to the journal without waiting for the disk. After `Ok` it survives the end of this process,
    /// and shortly afterwards also a power loss. Commits that begin afterwards are ordered after it. Reads see it
    /// shortly afterwards.
    fn append(&self, event: NewEvent) -> Result<(), StoreError>;

    /// A page of events and their total. Events are numbered in the order in which they become visible: no event appears later with
    /// a number below one that was read.
    async fn list_events(&self, filter: &EventFilter, page: EventPage) -> Result<EventListing, StoreError>;

    /// The first matching events with a number above `after`, oldest first, and the number up to which there are no others.
    async fn events_after(
        &self,
        filter: &EventFilter,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<Event>, u64), StoreError>;

    /// The highest event number that was ever assigned.
    async fn last_event(&self) -> Result<u64, StoreError>;

    /// Changes when an event of the topic has become visible. A caller that subscribes and then reads misses none.
    fn follow(&self, topic: Topic) -> watch::Receiver<u64>;

    /// All keys, including revoked ones, oldest first.
    async fn keys(&self) -> Result<Vec<KeyRecord>, StoreError>;

    /// A number that grows with every change of a key by any process. A caller that reads it before the keys, and reads the keys
    /// again when it has changed, misses none.
    async fn keys_version(&self) -> Result<u64, StoreError>;

    /// All snapshots, oldest first; those of the same time are ordered by id.
    async fn snapshots(&self) -> Result<Vec<SnapshotRecord>, StoreError>;

    /// All templates, oldest first; those of the same time are ordered by id.
    async fn templates(&self) -> Result<Vec<TemplateRecord>, StoreError>;

    /// All work that was begun and is not recorded as ended, ordered by kind and subject.
    async fn begun_work(&self) -> Result<Vec<BegunWork>, StoreError>;

    /// The record of an idempotency key. It may have expired: see [`IdempotencyRecord::is_expired`].
    async fn idempotency_record(
        &self,
        account: &str,
        endpoint: &str,
        key: &str,
    ) -> Result<Option<IdempotencyRecord>, StoreError>;

    /// The stored bytes of an account.
    async fn stored_bytes(&self, account: &str) -> Result<StoredBytes, StoreError>;

    /// Removes sandboxes terminated before `before` with their events, and older events whose sandbox has no record. Returns the
    /// number of removed sandboxes. Works in parts, so that other calls run in between; after a failure or a drop, some parts are
    /// done.
    async fn purge(&self, before: TimeMs) -> Result<u64, StoreError>;

    /// Removes the oldest terminated sandboxes with their events from each account that has records of more than `most_bytes` of them,
    /// until it has no more; otherwise as [`Store::purge`].
    async fn purge_beyond(&self, most_bytes: u64) -> Result<u64, StoreError>;

    /// Removes expired idempotency records and returns their number; otherwise as [`Store::purge`].
    async fn purge_idempotency_records(&self, now: TimeMs) -> Result<u64, StoreError>;

    /// Finishes pending work and closes the files; afterwards every call fails with [`StoreError::Closed`].
    async fn close(&self);
}
