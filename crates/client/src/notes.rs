//! What a run is told of a command, buffered or streamed.

use api::EventKind;
use serde_json::Value;

use crate::Error;
use crate::sandbox::Sandbox;

/// What a runtime event keeps of a command.
const SHOWN_BYTES: usize = 4096;

/// Tells how a command ended.
pub fn completed(
    sandbox: &Sandbox,
    command: Value,
    duration_ms: u64,
    exit_code: Option<i32>,
    signal: Option<String>,
) {
    sandbox.note(
        EventKind::ExecCompleted,
        &[
            ("command", command),
            ("durationMs", duration_ms.into()),
            ("exitCode", exit_code.into()),
            ("signal", signal.into()),
        ],
    );
}

/// Tells of a command that did not come to its end, and hands its error on.
pub fn failed(sandbox: &Sandbox, command: Value, error: Error) -> Error {
    let data =
        [("command", command), ("code", error.code_name().into()), ("message", error.message().into())];
    sandbox.note(EventKind::ExecError, &data);
    sandbox.failed(error)
}

/// As much of a command as an event keeps.
pub fn shown(command: &str) -> Value {
    let mut end = command.len().min(SHOWN_BYTES);
    while !command.is_char_boundary(end) {
        end -= 1;
    }
    command[..end].into()
}
