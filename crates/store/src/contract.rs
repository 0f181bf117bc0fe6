//! The trait that every store implements; `conformance` says in tests what its sentences mean.

use api::SandboxId;
use async_trait::async_trait;
use rules::TimeMs;

use crate::{
    Batch, Committed, Event, Filter, KeyRecord, Listing, Page, Remembered, SandboxRecord, StoreError,
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
