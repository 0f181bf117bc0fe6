//! Commands, terminals and code in a sandbox: what runs within one request, and what outlives its connection and is attached again.

pub mod code;
pub mod detached;
pub mod exec_events;
pub mod execute;
pub mod reattach;
pub mod stream;
pub mod terminal;
