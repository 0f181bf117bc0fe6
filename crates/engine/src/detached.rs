//! Detached executions: commands and terminals that outlive the request that started them.
//!
//! Each execution has a directory with its record and its log, and a task that writes the log (`log_writer`). Clients read the log
//! (`reader`) and send input over the link to the agent (`attachment`). A log that is full of output that its readers need slows
//! the command (`back_pressure`). After a crash of the daemon the log says where the next daemon's log writer continues.
//!
//! A sandbox's actor knows only [`SandboxExecutions`]: it publishes the link to the agent there, and takes the end events from
//! there when the sandbox is terminated. The operations for clients are methods of `SandboxHandle` (`sandbox`).

mod attachment;
mod back_pressure;
mod events;
mod execution;
mod initial_stdin;
mod log;
mod log_writer;
pub mod process;
mod reader;
mod record;
mod registry;
mod start;
mod status;
mod stored;

pub use attachment::{Attachment, Input};
pub use execution::DetachedExecution;
pub use reader::{OutputEvent, OutputReader};
pub(crate) use record::End;
pub use registry::{AgentAvailability, DetachedSettings, ExecutionRegistry, SandboxExecutions};
pub use status::{DetachedRequest, ExecutionId, ExecutionState, ExecutionStatus, ProcessArgs};
