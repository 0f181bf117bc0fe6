//! The result of a command that has ended.
//!
//! The engine passes what it observed; these functions derive the fields of the response. A timeout before the start is not a result
//! but a refusal ([`NeverStarted`], 408). Server faults, such as an agent that does not respond, are handled elsewhere.

use std::borrow::Cow;

use crate::signals::signal_name;

/// How bash itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited { code: i32 },
    Signalled { signal: i32 },
}

/// What the engine observed of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// It could not be started, for a reason that the client can fix: for example, the working directory is missing.
    NotStarted { reason: String },
    /// Its timeout passed before it could start.
    TimedOutBeforeStart { timeout_ms: u64 },
    /// It ran, and was killed at its timeout.
    TimedOut,
    /// It ended by itself, possibly at the moment of its timeout.
    Ended(Ended),
}

/// The fields of a result apart from its output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub exit_code: Option<i32>,
    pub signal: Option<Cow<'static, str>>,
    /// Appended to stderr, with a line end.
    pub stderr_note: Option<String>,
}

/// The command's timeout passed before it could start: `EXECUTION_TIMEOUT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the command's timeoutMs of {timeout_ms} expired before the command could start; raise it, or try again later"
)]
pub struct NeverStarted {
    pub timeout_ms: u64,
}

/// Derives the fields from what was observed.
pub fn outcome(command: Command) -> Result<Outcome, NeverStarted> {
    let (exit_code, signal, stderr_note) = match command {
        Command::TimedOutBeforeStart { timeout_ms } => return Err(NeverStarted { timeout_ms }),
        Command::NotStarted { reason } => (None, None, Some(format!("{}\n", reason.trim_end()))),
        Command::TimedOut => (None, Some(signal_name(9)), None),
        Command::Ended(Ended::Exited { code }) => (Some(code), None, None),
        Command::Ended(Ended::Signalled { signal }) => (None, Some(signal_name(signal)), None),
    };
    Ok(Outcome { exit_code, signal, stderr_note })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(command: Command) -> (Option<i32>, Option<String>, Option<String>) {
        let outcome = outcome(command).unwrap();
        (outcome.exit_code, outcome.signal.map(Cow::into_owned), outcome.stderr_note)
    }

    #[test]
    fn every_ending_has_its_fields() {
        assert_eq!(fields(Command::Ended(Ended::Exited { code: 0 })), (Some(0), None, None));
        // A child of bash that was killed: what bash says.
        assert_eq!(fields(Command::Ended(Ended::Exited { code: 137 })), (Some(137), None, None));
        let killed = fields(Command::Ended(Ended::Signalled { signal: 15 }));
        assert_eq!(killed, (None, Some("SIGTERM".into()), None));
        assert_eq!(fields(Command::TimedOut), (None, Some("SIGKILL".into()), None));
        let reason = "/nowhere: no such directory\n".to_owned();
        assert_eq!(fields(Command::NotStarted { reason: reason.clone() }), (None, None, Some(reason)));
    }

    #[test]
    fn a_timeout_before_the_start_is_no_result() {
        let refusal = outcome(Command::TimedOutBeforeStart { timeout_ms: 50 }).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the command's timeoutMs of 50 expired before the command could start; raise it, or try again later"
        );
    }
}
