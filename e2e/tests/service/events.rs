//! Events: their lists, their streams, and kills of the daemon meanwhile.

mod kills;
pub mod lists;
mod streams;
