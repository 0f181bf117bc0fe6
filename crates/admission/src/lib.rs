//! Admission: what every request passes before its handler, and until its response is read, whatever door it comes through.
//!
//! A *door* is an API with a form of its own: the native one, MCP, the two parts of the API of E2B, and the ports of sandboxes. Each
//! declares its endpoints ([`endpoint`]) with the scope that they need and the rate limit that they count against, and lets the
//! [`Gate`] decide. The order is the same for all:
//!
//! ```text
//! key or token (401) -> scope (403) -> rate limit (429) -> requests in flight (429) -> handler, in the memory of the account (503)
//!   -> one line in the log ([`record`])
//! ```
//!
//! Refusals are [`error::ApiError`]s; the door gives them the form that its clients parse.

#[cfg(any(test, feature = "testing"))]
pub mod captured_log;
pub mod endpoint;
pub mod error;
mod gate;
mod holding;
pub mod in_flight;
pub mod key_uses;
pub mod keyring;
pub mod limiter;
mod maintenance;
pub mod memory;
pub mod metrics;
pub mod output_memory;
pub mod proxies;
pub mod record;
pub mod request_id;
pub mod wall_clock;

pub use gate::{Gate, Refusal};
pub use maintenance::maintain;
