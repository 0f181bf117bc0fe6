//! The REST contract as plain types: names, units and null rules are those of the specification.
//!
//! Everything above and below speaks in these types; nothing here decides, reads a clock or does I/O.

mod exec;
mod ids;
mod sandbox;

pub use exec::{ExecuteRequest, ExecutionResult};
pub use ids::{BadSandboxId, SandboxId};
pub use sandbox::{EgressDefault, EgressPolicy, NetworkPolicy, Resources, SandboxConfig, SandboxState};
