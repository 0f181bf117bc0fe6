//! Permits for work of accounts, such that no account delays the work of others: a number for each account ([`AccountPermits`]), a number
//! for the host of which each account gets some at most ([`SharedPermits`]), and a number for the host that accounts get in turn
//! ([`TurnPermits`]). Dropping a permit returns it. Nothing fails.

mod account;
mod turns;

pub use account::{AccountPermit, AccountPermits, SharedPermit, SharedPermits};
pub use turns::{TurnPermit, TurnPermits};
