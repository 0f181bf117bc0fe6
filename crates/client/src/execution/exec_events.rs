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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_command_is_cut_between_characters() {
        let text = |command: &str| truncated(command).as_str().map(str::len);
        assert_eq!(text("ls"), Some(2));
        assert_eq!(text(&"x".repeat(4096)), Some(4096));
        assert_eq!(text(&"x".repeat(5000)), Some(4096));
        // The character at the limit has three bytes.
        let straddling = format!("{}€€", "x".repeat(4095));
        assert_eq!(text(&straddling), Some(4095));
        assert_eq!(text(&"€".repeat(2000)), Some(4095));
    }
}
