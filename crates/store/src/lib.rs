//! What the service remembers. The engine and the server write and read through [`Store`]; nothing above knows the database.
//!
//! The core is [`Store::commit`]: a [`Batch`] of writes is there as a whole or not at all, and when the call returns `Ok` it is
//! there for good, power loss included. A call that fails leaves nothing behind; after [`StoreError::Failed`] of a commit it
//! is not known until the next start whether the disk kept it, so its caller treats it as undone and repeats or undoes it.
//!
//! One implementation for service ([`SqliteStore`]), one for tests (`MemoryStore`, feature `testing`), and one suite that both
//! pass (`conformance`, same feature).

mod batch;
mod contract;
mod error;
mod events;
mod followers;
mod keys;
mod record;
mod remembered;
mod sqlite;

#[cfg(feature = "testing")]
pub mod conformance;
#[cfg(feature = "testing")]
mod memory;

pub use batch::{Batch, Committed, MAX_WRITES, NewEvent, Write};
pub use contract::Store;
pub use error::StoreError;
pub use events::{EventFilter, EventListing, EventOrder, EventPage, Topic};
pub use keys::KeyRecord;
pub use record::{Event, ExposedPort, Filter, Listing, MAX_PAGE, Page, SandboxRecord, SandboxSummary};
pub use remembered::{MAX_ANSWER, Remembered};
pub use sqlite::SqliteStore;

#[cfg(feature = "testing")]
pub use memory::{HeldCommits, MemoryStore};
