//! Commands in requests, and their results.

pub mod code;
pub mod executions;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Integer, RunId};

/// The body of an execute request. Only `command` is required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecuteBody {
    /// A bash command line of at most 65,536 bytes of UTF-8.
    #[cfg_attr(feature = "openapi", schema(required = true, max_length = 65_536, pattern = r"^[^\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(example = "echo hello"))]
    pub command: String,
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
    /// Time in ms after which the command and all its processes are killed. Paused time does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 300_000))]
    #[cfg_attr(feature = "openapi", schema(default = 60_000))]
    pub timeout_ms: Option<Integer>,
    /// Text for standard input. If absent, standard input is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub stdin: Option<String>,
    /// Whether to resume a paused sandbox for the command. If `false`, the request fails with `INVALID_STATE` while the sandbox is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
    /// `false`, or absent. A body with `true` is a `DetachedBody`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::never, required = false))]
    pub detached: Option<bool>,
}

/// The body of an execute request for a detached command, which continues without its client. Only `command` and `detached` are
/// required.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DetachedBody {
    /// A bash command line of at most 65,536 bytes of UTF-8.
    #[cfg_attr(feature = "openapi", schema(required = true, max_length = 65_536, pattern = r"^[^\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(example = "make test"))]
    pub command: String,
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::always))]
    pub detached: bool,
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
    /// Time in ms after which the command and all its processes are killed. Without it, the command may run as long as its
    /// sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000))]
    pub timeout_ms: Option<Integer>,
    /// Time in ms for which the command waits for a reader while its stored output is full and unread. After that, the oldest output
    /// is dropped until a reader comes. While a reader is connected, the command waits without limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 0, maximum = 86_400_000))]
    #[cfg_attr(feature = "openapi", schema(default = 120_000))]
    pub reader_timeout_ms: Option<Integer>,
    /// Initial standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub stdin: Option<String>,
    /// Whether standard input stays open after `stdin`, so that it can be written to later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub open_stdin: Option<bool>,
    /// Whether to resume a paused sandbox for the command. If `false`, the request fails with `INVALID_STATE` while the sandbox is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
}

/// The body of an execute request: a command whose result is the response, or a detached command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum CommandBody {
    Attached(ExecuteBody),
    Detached(DetachedBody),
}

/// A checked command with all defaults applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteRequest {
    pub command: String,
    /// `None`: the sandbox's `workdir`.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
    pub stdin: Option<String>,
    pub auto_resume: bool,
    /// The run of its events.
    #[serde(default)]
    pub run_id: Option<RunId>,
    /// `None`: root.
    #[serde(default)]
    pub user: Option<String>,
}

named! {
    /// Why a command was killed. `timeout`: its `timeoutMs` passed. `oom`: memory ran out. `terminated`: its sandbox was terminated.
    /// `signal`: another signal killed it, or the program of which bash reports the exit code 137 or 143.
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    EndReason by as_str {
        Timeout = "timeout",
        Oom = "oom",
        Terminated = "terminated",
        Signal = "signal",
    }
}

named! {
    /// How a response has the output of a command. `text`: with U+FFFD for bytes that are not UTF-8. `base64`: the exact bytes.
    #[derive(Default)]
    #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
    OutputEncoding by as_str {
        #[default]
        Text = "text",
        Base64 = "base64",
    }
}

impl OutputEncoding {
    pub(crate) fn is_text(&self) -> bool {
        *self == Self::Text
    }
}

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecutionResult {
    pub stdout: String,
    pub stderr: String,
    /// Exit code. `null` if the command could not start or bash was killed by a signal.
    #[cfg_attr(feature = "openapi", schema(required = true, example = 0))]
    pub exit_code: Option<i32>,
    /// Elapsed time in ms, paused time included.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub duration_ms: u64,
    /// Name of the signal that killed bash. `null` if bash exited or could not start.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub signal: Option<String>,
    /// Why the command was killed. Absent if it ended by itself or could not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub reason: Option<EndReason>,
    /// What happened, if there is a `reason`. A sentence for people; it names the limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub message: Option<String>,
    /// `true` if part of `stdout` was omitted. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub stdout_truncated: bool,
    /// `true` if part of `stderr` was omitted. Absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub stderr_truncated: bool,
    /// `base64` if `stdout` and `stderr` are in base64. Absent otherwise.
    #[serde(default, skip_serializing_if = "OutputEncoding::is_text")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub encoding: OutputEncoding,
}

named! {
    /// The events of an output stream, by message name.
    StreamEvent by as_str {
        Stdout = "stdout",
        Stderr = "stderr",
        /// Output was dropped.
        Dropped = "dropped",
        /// The end of the command; the data is a [`Done`].
        Done = "done",
        /// The end of the stream; the data is an error object.
        Error = "error",
    }
}

/// The data of `done`, the last event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// Exit code. `null` if the command could not start or bash was killed by a signal.
    #[cfg_attr(feature = "openapi", schema(required = true, example = 0))]
    pub exit_code: Option<i32>,
    /// Elapsed time in ms, paused time included.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub duration_ms: u64,
    /// Name of the signal that killed bash. `null` if bash exited or could not start.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub signal: Option<String>,
    /// Why the command was killed. Absent if it ended by itself or could not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub reason: Option<EndReason>,
    /// What happened, if there is a `reason`. A sentence for people; it names the limit that was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nulls_are_serialized_and_untruncated_flags_are_not() {
        let result = ExecutionResult {
            stdout: "a".into(),
            stderr: String::new(),
            exit_code: None,
            duration_ms: 5,
            signal: Some("SIGKILL".into()),
            reason: Some(EndReason::Timeout),
            message: None,
            stdout_truncated: false,
            stderr_truncated: true,
            encoding: OutputEncoding::Text,
        };
        assert_eq!(
            serde_json::to_string(&result).unwrap(),
            r#"{"stdout":"a","stderr":"","exitCode":null,"durationMs":5,"signal":"SIGKILL","reason":"timeout","stderrTruncated":true}"#
        );
        let done = Done { exit_code: Some(0), duration_ms: 5, signal: None, reason: None, message: None };
        let json = r#"{"exitCode":0,"durationMs":5,"signal":null}"#;
        assert_eq!(serde_json::to_string(&done).unwrap(), json);
        // As earlier versions of the service answer.
        assert_eq!(serde_json::from_str::<Done>(json).unwrap(), done);
    }

    #[test]
    fn reasons_are_written_as_they_are_named() {
        for reason in EndReason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }

    #[test]
    fn absent_fields_are_not_serialized() {
        let body = ExecuteBody { command: "true".into(), auto_resume: Some(false), ..ExecuteBody::default() };
        let json = r#"{"command":"true","autoResume":false}"#;
        assert_eq!(serde_json::to_string(&body).unwrap(), json);
        assert_eq!(serde_json::from_str::<ExecuteBody>(json).unwrap(), body);
    }
}
