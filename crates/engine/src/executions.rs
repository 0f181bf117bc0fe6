//! What a caller says and hears of a detached execution.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use api::{ALPHABET, RunId};
use guest_proto::TerminalSize;
use rand::Rng;
use rules::{OutputPosition, TimeMs};
use serde::{Deserialize, Serialize};

const PREFIX: &str = "ex_";
/// Random characters: 100 bits.
const OPAQUE: usize = 20;

/// Identifies an execution: `ex_` and 20 lower-case letters or digits. Safe to put into a path.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecutionId(String);

/// What a text lacks to be the id of an execution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an execution id is 'ex_' and {OPAQUE} lower-case letters or digits")]
pub struct BadExecutionId;

impl ExecutionId {
    pub fn random() -> Self {
        let mut random = [0; OPAQUE];
        rand::rng().fill_bytes(&mut random);
        let opaque = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
        Self(PREFIX.chars().chain(opaque).collect())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ExecutionId {
    type Err = BadExecutionId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let opaque = text.strip_prefix(PREFIX).ok_or(BadExecutionId)?;
        let fits = opaque.len() == OPAQUE
            && opaque.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if fits { Ok(Self(text.to_owned())) } else { Err(BadExecutionId) }
    }
}

impl TryFrom<String> for ExecutionId {
    type Error = BadExecutionId;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ExecutionId> for String {
    fn from(id: ExecutionId) -> Self {
        id.0
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_made_id_parses_and_others_do_not() {
        let id = ExecutionId::random();
        assert_eq!(id.as_str().parse(), Ok(id.clone()));
        assert_ne!(id, ExecutionId::random());
        for text in [
            "",
            "ex_",
            "ex_../../../../../../..",
            "ex_ABCDEFGHIJKLMNOPQRST",
            "sb_01234567890123456789",
            "ex_0123456789012345678",
        ] {
            assert_eq!(text.parse::<ExecutionId>(), Err(BadExecutionId), "{text:?}");
        }
    }
}
