//! Detached executions and terminals (an addition to the specification).

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ids::ALPHABET;
use crate::{EndReason, ErrorObject, Integer, OutputEncoding, Pagination, SandboxId, Timestamp};

const PREFIX: &str = "ex_";
/// Random characters: 20 of base 32 are 100 bits.
pub(crate) const OPAQUE: usize = 20;

/// Id of an execution: `ex_` and 20 lower-case letters and digits.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(value_type = String, pattern = "^ex_[a-z0-9]{20}$"))]
#[cfg_attr(feature = "openapi", schema(example = "ex_7k2m9x4p1v8q3t6w0z5y"))]
#[serde(try_from = "String", into = "String")]
pub struct ExecutionId(String);

/// The text is not an execution id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an execution's id is 'ex_' and {OPAQUE} lower-case letters or digits")]
pub struct BadExecutionId;

impl ExecutionId {
    /// An id from random bytes that the caller passes.
    pub fn from_random(bytes: [u8; OPAQUE]) -> Self {
        let opaque = bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
        Self(PREFIX.chars().chain(opaque).collect())
    }

    /// The id with its prefix, as in paths and bodies.
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

named! {
    /// State of an execution. `lost`: its processes ended with those of the sandbox, so its result is unknown.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    ExecutionState by as_str {
        Running = "running",
        /// It ended, was killed, or could not start.
        Exited = "exited",
        /// Its processes ended with those of the sandbox. The result is unknown.
        Lost = "lost",
    }
}

/// A detached execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Execution))]
#[serde(rename_all = "camelCase")]
pub struct ExecutionView {
    pub execution_id: ExecutionId,
    pub sandbox_id: SandboxId,
    pub state: ExecutionState,
    /// The command, or the first 4 KiB of a longer one.
    #[cfg_attr(feature = "openapi", schema(example = "make test"))]
    pub command: String,
    /// Working directory, if the request set one. Otherwise it is the sandbox's `workdir`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, example = "/workspace"))]
    pub cwd: Option<String>,
    /// Size of the terminal. Absent if the execution has no terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub terminal: Option<TerminalSize>,
    /// Id of the run to which the execution belongs; `""` without a run.
    #[cfg_attr(feature = "openapi", schema(example = "run_7"))]
    pub run_id: String,
    /// Time limit in ms. `null` if only the sandbox's `timeoutMs` applies.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub timeout_ms: Option<u64>,
    /// Whether standard input is open.
    pub stdin_open: bool,
    pub started_at: Timestamp,
    /// `null` while the execution runs.
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub ended_at: Option<Timestamp>,
    /// Exit code. `null` while the execution runs, if it could not start, if bash was killed by a signal, and if the result is
    /// lost.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub exit_code: Option<i32>,
    /// Name of the signal that killed bash; otherwise `null`.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub signal: Option<String>,
    /// Elapsed time in ms, paused time included; `null` while the execution runs.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub duration_ms: Option<u64>,
    /// Why the execution was killed. Absent while it runs, if it ended by itself or could not start, and if the result is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub reason: Option<EndReason>,
    /// Why the execution could not start or was lost, and what happened if there is a `reason`. Absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub message: Option<String>,
    /// Output offset of the end of the output so far.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::output_offset))]
    pub output_end: String,
    /// Output offset of the first stored byte.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::output_offset))]
    pub output_start: String,
}

/// A page of executions, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionList {
    pub data: Vec<ExecutionView>,
    pub pagination: Pagination,
}

/// The output of an execution so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ExecutionOutput {
    /// Standard output. For a terminal, all of its output.
    pub stdout: String,
    pub stderr: String,
    /// Output offset after this output. Send it as `after` to get the output that follows.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::output_offset))]
    pub next: String,
    /// Whether more output is available than fits into one response.
    pub more: bool,
    /// Whether requested output was dropped because it is no longer stored.
    pub dropped: bool,
    pub state: ExecutionState,
    /// `base64` if `stdout` and `stderr` are in base64. Absent otherwise.
    #[serde(default, skip_serializing_if = "OutputEncoding::is_text")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub encoding: OutputEncoding,
}

/// Schema of an output offset in a request.
#[cfg(feature = "openapi")]
pub struct OutputOffset;

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for OutputOffset {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        crate::schema::requested_output_offset()
    }
}

#[cfg(feature = "openapi")]
impl utoipa::ToSchema for OutputOffset {}

/// The body of a signal request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SignalBody {
    /// Name of the signal.
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::signal))]
    pub signal: String,
}

/// The response to a write to standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StdinWritten {
    /// Number of bytes written; always the whole body.
    pub bytes_written: u64,
    /// Whether standard input is closed.
    pub closed: bool,
}

/// The body of a request that opens a terminal. All fields are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TerminalBody {
    /// Width in columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>, nullable = false, minimum = 1, maximum = 1000, default = 80))]
    pub cols: Option<Integer>,
    /// Height in rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u16>, nullable = false, minimum = 1, maximum = 1000, default = 24))]
    pub rows: Option<Integer>,
    /// A bash command line of at most 65,536 bytes of UTF-8. Default: an interactive bash.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, max_length = 65_536, pattern = r"^[^\x00]*$"))]
    pub command: Option<String>,
    /// Working directory. Default: the sandbox's `workdir`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::path, required = false))]
    pub cwd: Option<String>,
    /// Environment variables, added to those of the sandbox. They override variables of the same name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::command_env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// User that runs the command: a name of at most 256 bytes in the sandbox's `/etc/passwd`. `HOME`, `USER` and `LOGNAME` are the user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, min_length = 1, max_length = 256))]
    #[cfg_attr(feature = "openapi", schema(pattern = r"^[^\x00-\x1f\x7f:]*$", default = "root"))]
    pub user: Option<String>,
    /// Time limit in ms. Without it, the terminal may run as long as its sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000))]
    pub timeout_ms: Option<Integer>,
    /// Whether to resume a paused sandbox. If `false`, the request fails with `INVALID_STATE` while the sandbox is paused.
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

/// A text message of the client on a terminal's websocket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalControl {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resize: Option<TerminalSize>,
    /// Name of a signal to send.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
}

/// A text message of the service on a terminal's websocket. It has exactly one field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TerminalNote {
    /// Offset of the next byte. The first message, and sent again after dropped output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub position: Option<u64>,
    /// The sandbox is about to be terminated or paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warning: Option<TerminalWarning>,
    /// The ended execution. The last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<ExecutionView>,
    /// The failure that ends the connection. The last message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
}

/// What a terminal's clients are told a minute before the timeout of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TerminalWarning {
    /// A sentence for people.
    pub message: String,
    /// When the timeout ends, unless it is changed.
    pub expires_at: Timestamp,
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
