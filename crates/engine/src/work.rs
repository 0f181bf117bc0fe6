//! Work inside a sandbox, admitted by its actor: commands and file operations, each bounded in time.

pub mod agent_timeout;
pub mod deadline;
pub mod execution;
pub mod files;
pub mod memory_watch;
pub mod run_as;
