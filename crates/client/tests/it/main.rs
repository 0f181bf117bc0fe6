//! The client against the real router of the service, through a proxy that injects faults.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod faults;
mod lists;
mod proxy;
mod reattach;
mod retries;
