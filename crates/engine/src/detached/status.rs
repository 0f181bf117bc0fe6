//! Requests for and statuses of detached executions.

use std::collections::BTreeMap;

pub use api::ExecutionId;
use api::{EndReason, RunId};
use guest_proto::TerminalSize;
use rules::{OutputPosition, TimeMs};
use serde::{Deserialize, Serialize};

/// A command to start, with all defaults applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DetachedRequest {
    /// An empty command on a terminal starts an interactive bash.
    pub command: String,
    /// `None` for the sandbox's `workdir`.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// `None` for no time limit.
    pub timeout_ms: Option<u64>,
    /// How long it waits for a reader while its log is full of unread output. `None` for the default.
    pub reader_timeout_ms: Option<u64>,
    /// The first input.
    pub stdin: Option<String>,
    /// Whether the input stays open for more. Always true on a terminal.
    pub open_stdin: bool,
    pub terminal: Option<TerminalSize>,
    pub auto_resume: bool,
    /// The run that its events belong to.
    pub run_id: Option<RunId>,
    /// `None` for root.
    pub user: Option<String>,
    /// For a process instead of a bash command.
    pub process: Option<ProcessArgs>,
}

/// What only processes have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessArgs {
    pub argv: Vec<String>,
    pub tag: Option<String>,
}

/// The state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecutionState {
    /// Also while its sandbox is paused.
    Running,
    /// It ended, or the sandbox refused to start it.
    Exited,
    /// Its processes ended with the sandbox's; the outcome is unknown.
    Lost,
}

/// The status of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionStatus {
    pub id: ExecutionId,
    pub command: String,
    pub cwd: Option<String>,
    /// `None` for root.
    pub user: Option<String>,
    /// The current size.
    pub terminal: Option<TerminalSize>,
    pub run_id: Option<RunId>,
    pub timeout_ms: Option<u64>,
    /// Whether it accepts input.
    pub open_stdin: bool,
    pub state: ExecutionState,
    /// As in the result of an attached command.
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    /// Why it was killed.
    pub reason: Option<EndReason>,
    /// Why it did not start or is lost, or what happened if there is a reason.
    pub message: Option<String>,
    pub started_at: TimeMs,
    pub ended_at: Option<TimeMs>,
    pub duration_ms: Option<u64>,
    /// The position behind all its output.
    pub output: OutputPosition,
    /// The position of the oldest output that is still in the log.
    pub oldest: OutputPosition,
}
