//! The records of sandboxes as they are stored and published: the store with the clock that stamps it, events, the status that an actor
//! publishes, and the counts of interrupted work.

pub mod clock;
pub mod events;
pub mod expiry_warnings;
pub mod exposure;
pub mod idempotency;
pub mod ids;
pub mod interruptions;
pub mod stamped_store;
pub mod status;
