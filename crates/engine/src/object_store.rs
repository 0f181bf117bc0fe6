//! Copies of snapshots in an object store: stores them in the background, and brings snapshots to this host.

mod fetch;
mod upload;

pub use fetch::{find, find_remote, template};
pub use upload::start as start_uploads;
