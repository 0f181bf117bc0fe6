//! Run events of commands.

use api::EventKind;
use serde_json::Value;

use crate::Error;
use crate::sandbox::Sandbox;

/// Limit for the command text in an event.
const SHOWN_BYTES: usize = 4096;

/// Records the end of a command.
pub fn completed(
    sandbox: &Sandbox,
    command: Value,
    duration_ms: u64,
    exit_code: Option<i32>,
    signal: Option<String>,
) {
    sandbox.record_event(
        EventKind::ExecCompleted,
        &[
            ("command", command),
            ("durationMs", duration_ms.into()),
            ("exitCode", exit_code.into()),
            ("signal", signal.into()),
        ],
    );
}

/// Records a command that failed, and returns its error.
pub fn failed(sandbox: &Sandbox, command: Value, error: Error) -> Error {
    let data =
        [("command", command), ("code", error.code_name().into()), ("message", error.message().into())];
    sandbox.record_event(EventKind::ExecError, &data);
    sandbox.failed(error)
}

/// The command text, truncated for an event.
pub fn truncated(command: &str) -> Value {
    let mut end = command.len().min(SHOWN_BYTES);
    while !command.is_char_boundary(end) {
        end -= 1;
    }
    command[..end].into()
}
