//! File operations and watches.

mod hostile;
pub mod operations;
mod watches;
