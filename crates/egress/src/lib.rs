//! What leaves a sandbox by name: the book of who may reach what, the sandboxes' DNS server, and the proxy that all TCP of a
//! sandbox with a closed policy goes through.
//!
//! User space only. What the kernel lets through is behind [`Gate`]; the crate `net` implements it.

pub mod dns;
mod gate;
mod guests;
mod parts;
pub mod proxy;
mod refusals;
mod resolver;

pub use gate::Gate;
pub use guests::{Connection, Guest, Guests, Passing};
pub use parts::Parts;
pub use refusals::{Reason, Refusal, Refusals, Target, Transport};
pub use resolver::{Addresses, Failure, Records, Resolve, Resolver, Upstreams};
