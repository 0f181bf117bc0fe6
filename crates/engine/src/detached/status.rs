//! What a caller says and hears of a detached execution.

use std::collections::BTreeMap;

pub use api::ExecutionId;
use api::RunId;
use guest_proto::TerminalSize;
use rand::Rng;
use rules::{OutputPosition, TimeMs};
use serde::{Deserialize, Serialize};

/// Random bytes of an id.
const RANDOM: usize = 20;

/// An id that nobody has.
pub fn fresh_id() -> ExecutionId {
    let mut random = [0; RANDOM];
    rand::rng().fill_bytes(&mut random);
    ExecutionId::from_random(random)
}

/// A command to start, complete: defaults are already in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DetachedRequest {
    /// Empty on a terminal: bash itself, waiting for what is typed.
    pub command: String,
    /// The sandbox's `workdir` where none is given.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    /// None: it may run for as long as its sandbox.
    pub timeout_ms: Option<u64>,
    /// Fed to it first.
    pub stdin: Option<String>,
    /// Its input takes more after that. Always so on a terminal.
    pub open_stdin: bool,
    pub terminal: Option<TerminalSize>,
    pub auto_resume: bool,
    /// The run it belongs to, for its events.
    pub run_id: Option<RunId>,
}

/// How far an execution is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ExecutionState {
    /// Also while its sandbox is paused.
    Running,
    /// It ended, or never started for a reason of its own.
    Exited,
    /// Its processes went with the sandbox's; nobody knows how it ended.
    Lost,
}

/// What is known of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionStatus {
    pub id: ExecutionId,
    pub command: String,
    pub cwd: Option<String>,
    /// As it was last set.
    pub terminal: Option<TerminalSize>,
    pub run_id: Option<RunId>,
    pub timeout_ms: Option<u64>,
    /// Whether it takes input now.
    pub open_stdin: bool,
    pub state: ExecutionState,
    /// As in the result of a command that was waited for.
    pub exit_code: Option<i32>,
    pub signal: Option<String>,
    /// Why it did not start, or is lost.
    pub message: Option<String>,
    pub started_at: TimeMs,
    pub ended_at: Option<TimeMs>,
    pub duration_ms: Option<u64>,
    /// All that it printed.
    pub output: OutputPosition,
    /// Where what is kept of that begins.
    pub oldest: OutputPosition,
}
