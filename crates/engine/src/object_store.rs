//! Copies of snapshots and of hibernated sandboxes in an object store: stores them in the background, and brings them to this host.

mod adopt;
mod evict;
mod fetch;
mod find;
mod hibernated;
mod upload;

pub use adopt::adopt;
pub use fetch::template;
pub use find::{find, find_remote};
pub use upload::start as start_uploads;
