//! The native REST API: its endpoints and the layers around them. MCP is one of its endpoints, whose tools call the others.
//!
//! [`guarded`] is the whole API, as `relay` passes requests to it. With the feature `testing` the crate also has `testing`, a whole
//! service on the fake driver; a normal build does not compile it.

mod endpoint;
mod in_process;
pub mod interpreter;
mod layers;
mod openapi;
mod routes;
mod sse;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use layers::{Guarded, Unrouted};
pub use routes::{FixedLimits, document, guarded, limits_of};
