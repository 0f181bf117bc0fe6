//! The result of a command that has ended.
//!
//! The engine passes what it observed; these functions derive the fields of the response. A timeout before the start is not a result
//! but a refusal ([`NeverStarted`], 408). Server faults, such as an agent that does not respond, are handled elsewhere.

use std::borrow::Cow;

use api::{EndReason, SandboxId};

use crate::execution::signals::signal_name;

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;
/// What bash adds to the number of the signal that ended a program, for its own exit code.
const BY_SIGNAL: i32 = 128;

/// How bash itself ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    Exited { code: i32 },
    Signalled { signal: i32 },
}

impl Ended {
    /// The signal that ended bash, or of which bash reports that it ended the command's last program. The other exit codes of that form
    /// have meanings of their own in many programs.
    fn signal(self) -> Option<i32> {
        match self {
            Self::Signalled { signal } => Some(signal),
            Self::Exited { code } => [SIGKILL, SIGTERM].into_iter().find(|signal| code == BY_SIGNAL + signal),
        }
    }

    /// Whether the kernel may have ended it for lack of memory.
    pub fn is_killed(self) -> bool {
        self.signal() == Some(SIGKILL)
    }
}

/// What else happened to a command that ended. It counts if a signal ended the command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndCause {
    /// Nothing that the engine knows of.
    Unknown,
    /// Its processes were killed at its timeout.
    Timeout { timeout_ms: u64 },
    /// Its processes were killed with all others of the sandbox, which was terminated for this reason.
    Termination { sandbox: SandboxId, reason: String },
    /// Meanwhile the kernel killed processes of the sandbox for lack of memory.
    OutOfMemory(OutOfMemory),
}

/// Whose memory ran out. The kernel counts the processes of a sandbox that it kills for this, and all commands of the sandbox share
/// the count: each that is killed while the count rises is taken to be among the counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OutOfMemory {
    #[error("the sandbox ran out of memory at its limit of {limit_mb} MB (resources.memoryMb)")]
    Sandbox { limit_mb: u32 },
    #[error(
        "the host, or all sandboxes together, ran out of memory; the sandbox was below its limit of {limit_mb} MB"
    )]
    Host { limit_mb: u32 },
}

/// What the engine observed of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObservedCommand {
    /// It could not be started, for a reason that the client can fix: for example, the working directory is missing.
    NotStarted { reason: String },
    /// Its timeout passed before it could start.
    TimedOutBeforeStart { timeout_ms: u64 },
    /// It ran and ended.
    Ended { ended: Ended, cause: EndCause },
}

/// The fields of a result apart from its output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CommandOutcome {
    pub exit_code: Option<i32>,
    pub signal: Option<Cow<'static, str>>,
    /// Appended to stderr, with a line end.
    pub stderr_note: Option<String>,
    /// Why it was killed, if it did not end by itself.
    pub reason: Option<EndReason>,
    /// A sentence about the reason.
    pub message: Option<String>,
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
pub fn outcome(command: ObservedCommand) -> Result<CommandOutcome, NeverStarted> {
    match command {
        ObservedCommand::TimedOutBeforeStart { timeout_ms } => Err(NeverStarted { timeout_ms }),
        ObservedCommand::NotStarted { reason } => {
            let stderr_note = Some(format!("{}\n", reason.trim_end()));
            Ok(CommandOutcome { stderr_note, ..CommandOutcome::default() })
        }
        ObservedCommand::Ended { ended, cause } => Ok(ended_outcome(ended, &cause)),
    }
}

/// The fields of a command that ran.
pub fn ended_outcome(ended: Ended, cause: &EndCause) -> CommandOutcome {
    let (exit_code, signal) = match ended {
        Ended::Exited { code } => (Some(code), None),
        Ended::Signalled { signal } => (None, Some(signal_name(signal))),
    };
    let (reason, message) = ended.signal().map(|signal| explain(signal, cause)).unzip();
    CommandOutcome { exit_code, signal, reason, message, ..CommandOutcome::default() }
}

/// Why a signal ended a command.
fn explain(signal: i32, cause: &EndCause) -> (EndReason, String) {
    match cause {
        EndCause::Timeout { timeout_ms } => {
            (EndReason::Timeout, format!("the command was killed at its timeoutMs of {timeout_ms}"))
        }
        EndCause::Termination { sandbox, reason } => {
            (EndReason::Terminated, format!("sandbox '{sandbox}' was terminated: {}", why_terminated(reason)))
        }
        EndCause::OutOfMemory(out_of_memory) if signal == SIGKILL => {
            (EndReason::Oom, format!("the command was killed: {out_of_memory}"))
        }
        EndCause::OutOfMemory(_) | EndCause::Unknown => {
            (EndReason::Signal, format!("the command was killed by {}", signal_name(signal)))
        }
    }
}

/// The reason in the record of a terminated sandbox, in words.
fn why_terminated(reason: &str) -> &str {
    match reason {
        "deleted" | "request" => "its termination was requested",
        "timeout" => "its timeout ended",
        "expired" => "it was paused for longer than the service keeps paused sandboxes",
        "adopted" => "another host has adopted it",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(ended: Ended, cause: EndCause) -> CommandOutcome {
        outcome(ObservedCommand::Ended { ended, cause }).unwrap()
    }

    fn code(code: i32) -> Ended {
        Ended::Exited { code }
    }

    fn signal(signal: i32) -> Ended {
        Ended::Signalled { signal }
    }

    fn causes() -> [EndCause; 4] {
        let sandbox: SandboxId = "sb_12345678".parse().unwrap();
        [
            EndCause::Unknown,
            EndCause::Timeout { timeout_ms: 50 },
            EndCause::Termination { sandbox, reason: "timeout".to_owned() },
            EndCause::OutOfMemory(OutOfMemory::Sandbox { limit_mb: 512 }),
        ]
    }

    #[test]
    fn every_ending_has_its_fields() {
        let fields = |outcome: CommandOutcome| (outcome.exit_code, outcome.signal, outcome.stderr_note);
        assert_eq!(fields(ended(code(0), EndCause::Unknown)), (Some(0), None, None));
        // A child of bash that was killed: what bash says.
        assert_eq!(fields(ended(code(137), EndCause::Unknown)), (Some(137), None, None));
        assert_eq!(fields(ended(signal(15), EndCause::Unknown)), (None, Some("SIGTERM".into()), None));
        let timed_out = ended(signal(9), EndCause::Timeout { timeout_ms: 50 });
        assert_eq!(fields(timed_out), (None, Some("SIGKILL".into()), None));
        let reason = "/nowhere: no such directory\n".to_owned();
        let not_started = outcome(ObservedCommand::NotStarted { reason: reason.clone() }).unwrap();
        assert_eq!((not_started.reason, not_started.message.clone()), (None, None));
        assert_eq!(fields(not_started), (None, None, Some(reason)));
    }

    #[test]
    fn a_command_that_ends_by_itself_has_no_reason() {
        for cause in causes() {
            for own in [0, 1, 2, 127, 129, 139, 255] {
                let outcome = ended(code(own), cause.clone());
                assert_eq!((outcome.reason, outcome.message), (None, None), "{own}, {cause:?}");
            }
        }
    }

    #[test]
    fn a_command_that_was_killed_has_the_reason_and_names_the_limit() {
        let reasons = [EndReason::Signal, EndReason::Timeout, EndReason::Terminated, EndReason::Oom];
        let named =
            ["SIGKILL", "timeoutMs of 50", "sandbox 'sb_12345678' was terminated: its timeout", "512 MB"];
        for ((cause, reason), named) in causes().into_iter().zip(reasons).zip(named) {
            // Bash was killed, or its last program.
            for killed in [signal(9), code(137)] {
                let outcome = ended(killed, cause.clone());
                assert_eq!(outcome.reason, Some(reason), "{killed:?}, {cause:?}");
                assert!(outcome.message.unwrap().contains(named), "{killed:?}, {cause:?}");
            }
        }
        assert_eq!(ended(code(143), EndCause::Unknown).message.unwrap(), "the command was killed by SIGTERM");
    }

    #[test]
    fn lack_of_memory_ends_nothing_by_another_signal() {
        let cause = EndCause::OutOfMemory(OutOfMemory::Sandbox { limit_mb: 512 });
        for killed in [signal(11), signal(15), code(143)] {
            assert!(!killed.is_killed());
            assert_eq!(ended(killed, cause.clone()).reason, Some(EndReason::Signal), "{killed:?}");
        }
        assert!(signal(9).is_killed() && code(137).is_killed());
    }

    #[test]
    fn a_timeout_before_the_start_is_no_result() {
        let refusal = outcome(ObservedCommand::TimedOutBeforeStart { timeout_ms: 50 }).unwrap_err();
        assert_eq!(
            refusal.to_string(),
            "the command's timeoutMs of 50 expired before the command could start; raise it, or try again later"
        );
    }
}
