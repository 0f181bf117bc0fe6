//! Egress by name: the policy registry, the sandboxes' DNS server, and the proxy for all TCP of sandboxes under default
//! deny.
//!
//! User space only. [`KernelNetwork`] is the interface to the kernel; the crate `net` implements it.

pub mod dns;
mod kernel;
mod parts;
pub mod proxy;
mod refusals;
mod registry;
mod resolver;
mod transport;
pub mod verdict;

pub use kernel::KernelNetwork;
pub use parts::Parts;
pub use refusals::{Reason, Refusal, Refusals, RefusedTarget};
pub use registry::{Connection, Guest, Passing, PolicyRegistry};
pub use resolver::{Addresses, Records, Resolve, ResolveFailure, Resolver, Upstreams};
pub use transport::Transport;
