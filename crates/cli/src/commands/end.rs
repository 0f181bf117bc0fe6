//! The end of a command: its exit code, and on standard error why it was killed, so that a 137 is never silent.

use std::process::ExitCode;

use sandboxd_client::{Done, EndReason, ExecutionResult, ExecutionView};

use crate::output::note;
use crate::user_units::in_user_units;

/// Exit code of a command that could not start, as in shells.
const EXIT_CODE_NOT_STARTED: u8 = 126;
const NOT_STARTED: &str = "the command could not start";
/// The end of the service's message about a sandbox that has reached its timeout. Nobody has requested that end.
const BY_TIMEOUT: &str = ": its timeout ended";
const BY_SIGNAL: u8 = 128;
/// The names of the signals from 1 on.
pub const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
    "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
    "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

/// How a command ended, from any response of the service.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommandEnd<'a> {
    pub exit_code: Option<i32>,
    pub signal: Option<&'a str>,
    pub reason: Option<EndReason>,
    /// A sentence about the reason.
    pub message: Option<&'a str>,
}

/// Prints why the command was killed or could not start, if so. Returns the exit code of sbx.
pub fn report(end: CommandEnd<'_>) -> ExitCode {
    if let Some(why) = why_killed(end) {
        note(&format!("sbx: {why}"));
    }
    ExitCode::from(code(end))
}

fn why_killed(end: CommandEnd<'_>) -> Option<String> {
    match (end.reason, end.message, end.signal) {
        (Some(EndReason::Timeout), Some(message), _) => {
            Some(format!("{}; --timeout of 'sbx exec' and 'sbx run' sets another", in_user_units(message)))
        }
        (Some(EndReason::Terminated), Some(message), _) if message.ends_with(BY_TIMEOUT) => Some(format!(
            "{}; --timeout of 'sbx create' and 'sbx timeout' set when a sandbox ends",
            in_user_units(message)
        )),
        (Some(_), Some(message), _) => Some(in_user_units(message)),
        // An earlier version of the service says only this.
        (_, _, Some(signal)) => Some(format!("the command was killed by {signal}")),
        (Some(reason), None, None) => Some(format!("the command was killed: {reason}")),
        (None, ..) if end.exit_code.is_some() => None,
        // Only a view has the message. Otherwise standard error has it already, without the name of this program.
        (None, message, None) => Some(message.unwrap_or(NOT_STARTED).to_owned()),
    }
}

/// The exit code of sbx for the end of a command: its own, or 128 plus the number of its signal.
pub fn code(end: CommandEnd<'_>) -> u8 {
    match (end.exit_code, end.signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => BY_SIGNAL + number(signal),
        (None, None) => EXIT_CODE_NOT_STARTED,
    }
}

/// The number of a signal on Linux.
fn number(signal: &str) -> u8 {
    let name = signal.strip_prefix("SIG").unwrap_or(signal);
    let at = SIGNALS.iter().position(|known| *known == name);
    at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
}

impl<'a> From<&'a ExecutionResult> for CommandEnd<'a> {
    fn from(result: &'a ExecutionResult) -> Self {
        let (signal, message) = (result.signal.as_deref(), result.message.as_deref());
        Self { exit_code: result.exit_code, signal, reason: result.reason, message }
    }
}

impl<'a> From<&'a Done> for CommandEnd<'a> {
    fn from(done: &'a Done) -> Self {
        let (signal, message) = (done.signal.as_deref(), done.message.as_deref());
        Self { exit_code: done.exit_code, signal, reason: done.reason, message }
    }
}

impl<'a> From<&'a ExecutionView> for CommandEnd<'a> {
    fn from(view: &'a ExecutionView) -> Self {
        let (signal, message) = (view.signal.as_deref(), view.message.as_deref());
        Self { exit_code: view.exit_code, signal, reason: view.reason, message }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(exit_code: i32) -> CommandEnd<'static> {
        CommandEnd { exit_code: Some(exit_code), ..CommandEnd::default() }
    }

    fn killed(signal: &str) -> CommandEnd<'_> {
        CommandEnd { signal: Some(signal), ..CommandEnd::default() }
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let ends = [exited(0), exited(3), killed("SIGKILL"), killed("SIGTERM"), CommandEnd::default()];
        assert_eq!(ends.map(code), [0, 3, 137, 143, 126]);
        assert_eq!((number("SIGSYS"), number("SIGRTMIN+3")), (31, 0));
    }

    #[test]
    fn every_killed_command_has_one_line() {
        let timeout = CommandEnd {
            reason: Some(EndReason::Timeout),
            message: Some("the command was killed at its timeoutMs of 60000"),
            ..killed("SIGKILL")
        };
        assert_eq!(
            why_killed(timeout).unwrap(),
            "the command was killed at its time limit of 1m; --timeout of 'sbx exec' and 'sbx run' sets another"
        );
        let terminated = CommandEnd {
            reason: Some(EndReason::Terminated),
            message: Some("sandbox 'sb_aaaaaaaa' was terminated: its timeout ended"),
            ..killed("SIGKILL")
        };
        let text = why_killed(terminated).unwrap();
        assert!(text.contains("its timeout ended; --timeout") && text.contains("'sbx timeout'"), "{text}");
        let removed = CommandEnd {
            message: Some("sandbox 'sb_aaaaaaaa' was terminated: its termination was requested"),
            ..terminated
        };
        assert_eq!(why_killed(removed).as_deref(), removed.message, "no timeout has ended it");
        let program = CommandEnd { reason: Some(EndReason::Signal), message: Some("m"), ..exited(137) };
        assert_eq!(why_killed(program).unwrap(), "m");
        let without_words = CommandEnd { reason: Some(EndReason::Oom), ..exited(137) };
        assert_eq!(why_killed(without_words).unwrap(), "the command was killed: oom");
        assert_eq!(why_killed(killed("SIGKILL")).unwrap(), "the command was killed by SIGKILL");
        for end in [exited(0), exited(1)] {
            assert_eq!(why_killed(end), None);
        }
    }

    #[test]
    fn a_command_that_could_not_start_has_one_line() {
        assert_eq!(why_killed(CommandEnd::default()).unwrap(), NOT_STARTED);
        let view = CommandEnd { message: Some("the result is lost"), ..CommandEnd::default() };
        assert_eq!(why_killed(view).unwrap(), "the result is lost");
    }
}
