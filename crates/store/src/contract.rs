//! The trait that every store implements; `conformance` says in tests what its sentences mean.

use api::SandboxId;
use async_trait::async_trait;
use rules::TimeMs;

use crate::{Batch, Committed, Event, Filter, Listing, Page, SandboxRecord, StoreError};

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

    /// Removes sandboxes terminated before `before` with their events, and events from before it whose sandbox has no
    /// record. Answers how many sandboxes went. Other calls get their turn in between; when this one fails or is dropped,
    /// a part is done.
    async fn purge(&self, before: TimeMs) -> Result<u64, StoreError>;

    /// Finishes what is under way and lets the files go; afterwards every call fails with [`StoreError::Closed`].
    async fn close(&self);
}
