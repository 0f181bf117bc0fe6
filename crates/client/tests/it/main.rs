//! The client against the real router of the service, through a proxy that injects faults.

mod faults;
mod proxy;
mod reattach;
mod retries;
