//! Durable storage of the service. The engine and the server use [`Store`]; nothing above depends on the database.
//!
//! The core is [`Store::commit`]: a [`Batch`] of writes is applied as a whole or not at all, and after `Ok` it
//! survives a power loss. A failed call leaves nothing visible; after [`StoreError::Failed`] of a commit it is
//! unknown until the next start whether it is on disk, so the caller treats it as failed and repeats or reverts it.
//!
//! There is one implementation for production ([`SqliteStore`]), one for tests (`MemoryStore`, feature `testing`), and one suite that
//! both pass (`conformance`, same feature).

mod batch;
mod begun_work;
mod contract;
mod error;
mod events;
mod followers;
mod idempotency_record;
mod keys;
mod record;
mod snapshots;
mod sqlite;
mod templates;

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
mod memory;

pub use batch::{Batch, Committed, MAX_WRITES, NewEvent, Write};
pub use begun_work::BegunWork;
pub use contract::Store;
pub use error::{StoreCause, StoreError};
pub use events::{EventFilter, EventListing, EventOrder, EventPage, Topic};
pub use idempotency_record::{IdempotencyRecord, MAX_RESPONSE, StoredBytes};
pub use keys::KeyRecord;
pub use record::{
    EndedSandbox, Event, ExposedPort, Filter, Listing, MAX_PAGE, PageRange, SandboxRecord, SandboxSummary,
};
pub use snapshots::{SnapshotRecord, SnapshotVisibility};
pub use sqlite::SqliteStore;
pub use templates::TemplateRecord;

#[cfg(feature = "testing")]
pub use memory::{HeldCommits, MemoryStore};
