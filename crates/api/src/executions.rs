//! Commands that outlive the request which started them, and terminals (additions of ours).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ALPHABET;
use crate::{ErrorObject, Integer, Pagination, SandboxId, Timestamp};

const PREFIX: &str = "ex_";
/// Random characters: 20 of base 32 are 100 bits.
const OPAQUE: usize = 20;

/// Identifies an execution: `ex_` and an opaque part of lower-case letters and digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^ex_[a-z0-9]{20}$"))]
#[cfg_attr(feature = "openapi", schema(example = "ex_7k2m9x4p1v8q3t6w0z5y"))]
#[serde(try_from = "String", into = "String")]
pub struct ExecutionId(String);

/// What a text lacks to be the id of an execution.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an execution's id is 'ex_' and {OPAQUE} lower-case letters or digits")]
pub struct BadExecutionId;

impl ExecutionId {
    /// An id from random bytes; the caller brings the randomness.
    pub fn from_random(bytes: [u8; OPAQUE]) -> Self {
        let opaque = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
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

/// What has become of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum ExecutionState {
    Running,
    /// It ended by itself, or a signal, its timeout or somebody ended it, or it did not start.
    Exited,
    /// How it ended is not known: its processes went with those of the sandbox.
    Lost,
}

impl ExecutionState {
    pub const ALL: &[Self] = &[Self::Running, Self::Exited, Self::Lost];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Lost => "lost",
        }
    }
}

impl fmt::Display for ExecutionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A detached execution as start, get and list show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Execution))]
#[serde(rename_all = "camelCase")]
pub struct ExecutionView {
    pub execution_id: ExecutionId,
    pub sandbox_id: SandboxId,
    pub state: ExecutionState,
    /// Of a long command the first 4 KiB.
    #[cfg_attr(feature = "openapi", schema(example = "make test"))]
    pub command: String,
    /// Where it runs; the sandbox's `workdir` where it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, example = "/workspace"))]
    pub cwd: Option<String>,
    /// The size of its terminal, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub terminal: Option<TerminalSize>,
    /// The run it belongs to; empty where it belongs to none.
    #[cfg_attr(feature = "openapi", schema(example = "run_7"))]
    pub run_id: String,
    /// Time in ms after which it is killed; `null` where there is none but the sandbox's.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub timeout_ms: Option<u64>,
    /// Whether it can be written to.
    pub stdin_open: bool,
    pub started_at: Timestamp,
    /// `null` while it runs.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub ended_at: Option<Timestamp>,
    /// 0 is success; `null` while it runs, and when it did not start, was killed or lost.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub exit_code: Option<i32>,
    /// The signal that killed it; `null` otherwise.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub signal: Option<String>,
    /// Wall-clock time in ms; `null` while it runs.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub duration_ms: Option<u64>,
    /// Why it did not start or was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub message: Option<String>,
    /// Where its output ends at present.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::output_place))]
    pub output_end: String,
    /// Where the output that is still kept begins.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::output_place))]
    pub output_start: String,
}

/// A page of executions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionList {
    pub data: Vec<ExecutionView>,
    pub pagination: Pagination,
}

/// The output of an execution so far, in one piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionOutput {
    /// All that a terminal shows is here.
    pub stdout: String,
    pub stderr: String,
    /// Where this output ends: with it as `after` comes what follows.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::output_place))]
    pub next: String,
    /// Whether there is more already than one answer holds.
    pub more: bool,
    /// Whether output after the asked place is not kept any more.
    pub dropped: bool,
    pub state: ExecutionState,
}

/// A place in a request, as its schema.
#[cfg(feature = "openapi")]
pub struct OutputPlace;

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for OutputPlace {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::schema::output_place_asked()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for OutputPlace {}

/// A signal to send.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignalBody {
    /// Its name.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::signal))]
    pub signal: String,
}

/// What writing to an execution's standard input answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StdinWritten {
    /// How many bytes it took, which is all of them.
    pub bytes_written: u64,
    /// Whether its standard input has ended.
    pub closed: bool,
}

/// A terminal to open. Nothing has to be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalBody {
    /// Columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>, nullable = false, minimum = 1, maximum = 1000, default = 80))]
    pub cols: Option<Integer>,
    /// Rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>, nullable = false, minimum = 1, maximum = 1000, default = 24))]
    pub rows: Option<Integer>,
    /// Run with bash. At most 65,536 bytes of UTF-8; a login shell where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 65_536, pattern = r"^[^\x00]*$"))]
    pub command: Option<String>,
    /// Working directory; the sandbox's `workdir` where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::path, required = false))]
    pub cwd: Option<String>,
    /// Added to the sandbox's environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// Time in ms after which it is killed; there is none where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000))]
    pub timeout_ms: Option<Integer>,
    /// Whether a paused sandbox is resumed for it; if not, that is `INVALID_STATE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TerminalSize {
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000, example = 80))]
    pub cols: u16,
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000, example = 24))]
    pub rows: u16,
}

/// A message in text on a terminal's websocket, from the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalControl {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<TerminalSize>,
    /// Name of a signal, for what runs in the foreground.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// A message in text on a terminal's websocket, from the service. One of its fields is there.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalNote {
    /// Where the bytes begin that come next: the first message, and again where output was dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// How it ended; the last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ExecutionView>,
    /// Why nothing more comes; the last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_strictly() {
        let made = ExecutionId::from_random([7; 20]);
        assert_eq!(made.to_string().parse(), Ok(made));
        for text in
            ["", "ex_", "sb_abcdefgh", "ex_abcdefgh", "ex_ABCDEFGHABCDEFGHABCD", "ex_abcdefgh/bcdefghabcd"]
        {
            assert_eq!(text.parse::<ExecutionId>(), Err(BadExecutionId), "{text}");
        }
    }

    #[test]
    fn states_are_written_as_they_are_named() {
        for state in ExecutionState::ALL {
            assert_eq!(serde_json::to_value(state).unwrap(), state.as_str());
        }
    }
}
