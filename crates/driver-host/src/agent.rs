//! The agent of a sandbox, as the host sees it: the copies of its program, the stream to it, and its priority.

pub mod control_link;
pub mod copies;
pub mod link;
mod priority;

pub use priority::raise_priority;
