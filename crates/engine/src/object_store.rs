//! Copies of snapshots and of hibernated sandboxes in an object store: stores them in the background, and brings them to this host.

mod adopt;
mod evict;
mod fetch;
mod hibernated;
mod upload;

pub use adopt::adopt;
pub use fetch::{find, find_remote, template};
pub use upload::start as start_uploads;
