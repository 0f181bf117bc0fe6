//! A command as a client asks for it, and its result.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Integer, RunId};

/// A command to run. Only `command` has to be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecuteBody {
    /// Run with bash. At most 65,536 bytes of UTF-8.
    #[cfg_attr(feature = "openapi", schema(required = true, max_length = 65_536, pattern = r"^[^\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(example = "echo hello"))]
    pub command: String,
    /// Working directory; the sandbox's `workdir` where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::path, required = false))]
    pub cwd: Option<String>,
    /// Added to the sandbox's environment; of two values with one name this one counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// Time in ms after which the command and all that it started are killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 300_000))]
    #[cfg_attr(feature = "openapi", schema(default = 60_000))]
    pub timeout_ms: Option<Integer>,
    /// Text that the command reads from its standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub stdin: Option<String>,
    /// Whether a paused sandbox is resumed for the command; if not, that is `INVALID_STATE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
    /// `true` is for `DetachedBody`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::never, required = false))]
    pub detached: Option<bool>,
}

/// A command that goes on when its client goes away. Only `command` and `detached` have to be there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DetachedBody {
    /// Run with bash. At most 65,536 bytes of UTF-8.
    #[cfg_attr(feature = "openapi", schema(required = true, max_length = 65_536, pattern = r"^[^\x00]*$"))]
    #[cfg_attr(feature = "openapi", schema(example = "make test"))]
    pub command: String,
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::always))]
    pub detached: bool,
    /// Working directory; the sandbox's `workdir` where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::path, required = false))]
    pub cwd: Option<String>,
    /// Added to the sandbox's environment; of two values with one name this one counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(schema_with = crate::schema::env, required = false))]
    pub env: Option<BTreeMap<String, String>>,
    /// Time in ms after which the command and all that it started are killed; there is none where it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>, nullable = false, minimum = 1, maximum = 86_400_000))]
    pub timeout_ms: Option<Integer>,
    /// Text that the command reads from its standard input first.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub stdin: Option<String>,
    /// Whether its standard input stays open, to be written to later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = false))]
    pub open_stdin: Option<bool>,
    /// Whether a paused sandbox is resumed for the command; if not, that is `INVALID_STATE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false, default = true))]
    pub auto_resume: Option<bool>,
}

/// The body of execute: a command whose end the response waits for, or one that goes on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum CommandBody {
    Attached(ExecuteBody),
    Detached(DetachedBody),
}

/// One command, complete: defaults are already in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecuteRequest {
    pub command: String,
    /// The sandbox's `workdir` where none is given.
    pub cwd: Option<String>,
    pub env: BTreeMap<String, String>,
    pub timeout_ms: u64,
    pub stdin: Option<String>,
    pub auto_resume: bool,
    /// The run it belongs to, for its events.
    #[serde(default)]
    pub run_id: Option<RunId>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExecutionResult {
    pub stdout: String,
    pub stderr: String,
    /// 0 is success; `null` when the command did not start or was killed.
    #[cfg_attr(feature = "openapi", schema(required = true, example = 0))]
    pub exit_code: Option<i32>,
    /// Wall-clock time in ms.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub duration_ms: u64,
    /// The signal that killed the command; `null` when it exited.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub signal: Option<String>,
    /// Whether bytes are missing from `stdout`; not there otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub stdout_truncated: bool,
    /// Whether bytes are missing from `stderr`; not there otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub stderr_truncated: bool,
}

/// The events of a stream of output, by the name that each message has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEvent {
    Stdout,
    Stderr,
    /// Output that is not stored any more was skipped.
    Dropped,
    /// The end of the command; the data is a [`Done`].
    Done,
    /// The end of the stream; the data is an error object.
    Error,
}

impl StreamEvent {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Dropped => "dropped",
            Self::Done => "done",
            Self::Error => "error",
        }
    }
}

/// The data of a stream's last event, `done`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Done {
    /// 0 is success; `null` when the command did not start or was killed.
    #[cfg_attr(feature = "openapi", schema(required = true, example = 0))]
    pub exit_code: Option<i32>,
    /// Wall-clock time in ms.
    #[cfg_attr(feature = "openapi", schema(example = 12))]
    pub duration_ms: u64,
    /// The signal that killed the command; `null` when it exited.
    #[cfg_attr(feature = "openapi", schema(required = true, example = json!(null)))]
    pub signal: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_is_said_and_whole_output_is_not() {
        let result = ExecutionResult {
            stdout: "a".into(),
            stderr: String::new(),
            exit_code: None,
            duration_ms: 5,
            signal: Some("SIGKILL".into()),
            stdout_truncated: false,
            stderr_truncated: true,
        };
        assert_eq!(
            serde_json::to_string(&result).unwrap(),
            r#"{"stdout":"a","stderr":"","exitCode":null,"durationMs":5,"signal":"SIGKILL","stderrTruncated":true}"#
        );
        let done = Done { exit_code: Some(0), duration_ms: 5, signal: None };
        assert_eq!(serde_json::to_string(&done).unwrap(), r#"{"exitCode":0,"durationMs":5,"signal":null}"#);
    }

    #[test]
    fn a_body_says_no_more_than_was_given() {
        let body = ExecuteBody { command: "true".into(), auto_resume: Some(false), ..ExecuteBody::default() };
        let json = r#"{"command":"true","autoResume":false}"#;
        assert_eq!(serde_json::to_string(&body).unwrap(), json);
        assert_eq!(serde_json::from_str::<ExecuteBody>(json).unwrap(), body);
    }
}
