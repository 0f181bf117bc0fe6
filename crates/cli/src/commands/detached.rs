//! Runs a command as a detached execution and follows it to its end. Called by `exec`, and by `run` on a terminal, for long time limits and
//! for streamed input.
//!
//! A detached execution survives lost connections, and Ctrl-C can be sent to the command instead of killing it. A
//! slow reader slows the command, also while sbx is disconnected, so no output is lost.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::{Either, select};
use sandboxd_client::{Code, Detached, Error, Execute};
use tokio::time::timeout;

use super::follow::print_detached;
use super::input::StreamedInput;
use super::pause_watch::{StillPaused, watch_pauses};
use crate::interrupt::{EXIT_CODE_SIGINT, Interrupt};
use crate::output::{self, OutputFormat};

/// How long the command waits while sbx is disconnected: up to the longest time limit of a command.
const READER_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long the output may go on after sending input has failed.
const LAST_OUTPUT: Duration = Duration::from_secs(5);
/// Limit for killing a command, which leaves time to remove the sandbox afterwards.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// How the following of a command ended.
pub enum Followed {
    /// With the command, or by an interrupt.
    Ended(ExitCode),
    /// The command goes on when its sandbox is resumed.
    StillPaused(StillPaused, Detached),
}

/// Runs the command with its time limit, which also ends it if sbx is killed. The first Ctrl-C is sent to the command, the second kills it.
/// Input is sent meanwhile.
pub async fn run_detached(
    execute: Execute,
    input: Option<StreamedInput>,
    format: OutputFormat,
    interrupt: &Interrupt,
) -> Result<Followed> {
    let command = execute.reader_timeout(READER_TIMEOUT).detached().await?;
    interrupt.is_handled();
    let code = tokio::select! {
        code = follow_with_input(&command, input, format) => code,
        still_paused = watch_pauses(command.sandbox()) => return Ok(Followed::StillPaused(still_paused, command)),
        code = forward_interrupt(&command, interrupt) => {
            cancel(&command).await;
            return Ok(Followed::Ended(ExitCode::from(code)));
        }
    };
    if code.is_err() {
        cancel(&command).await;
    }
    code.map(Followed::Ended)
}

/// Follows the command to its end, even if it has not read all its input.
async fn follow_with_input(
    command: &Detached,
    input: Option<StreamedInput>,
    format: OutputFormat,
) -> Result<ExitCode> {
    let printing = std::pin::pin!(print_detached(command, format));
    let Some(input) = input else { return printing.await?.complete() };
    let printed = match select(printing, std::pin::pin!(input.write_stdin(command))).await {
        Either::Left((printed, _)) => printed,
        Either::Right((Ok(()), printing)) => printing.await,
        // The sandbox may have ended under the input; then the output has the reason and the exit code.
        Either::Right((Err(error), printing)) => match timeout(LAST_OUTPUT, printing).await {
            Ok(printed) => printed,
            Err(_) => return Err(error),
        },
    };
    printed?.complete()
}

/// A signal resumes a paused sandbox, which the service refuses while the disk of the host is almost full.
fn uninterrupted_note(id: &str, error: &Error) -> String {
    let cannot = format!("sbx: cannot interrupt the command: {error}");
    if error.code() != Code::ResourceExhausted {
        return cannot;
    }
    format!(
        "{cannot}; the sandbox is paused until the host has room, and the command with it: 'sbx rm {id}' ends both, and another Ctrl-C \
         ends sbx only"
    )
}

/// Kills the command. If that fails, its time limit ends it.
pub async fn cancel(command: &Detached) {
    let _ = timeout(CANCEL_TIMEOUT, command.cancel()).await;
}

/// Sends the first signal to the command; returns at the second.
async fn forward_interrupt(command: &Detached, interrupt: &Interrupt) -> u8 {
    let name = if interrupt.first().await == EXIT_CODE_SIGINT { "SIGINT" } else { "SIGTERM" };
    tokio::select! {
        biased;
        code = interrupt.second() => code,
        Err(error) = command.signal(name) => {
            // The command may have just ended. If not, the user can interrupt again.
            output::note(&uninterrupted_note(command.sandbox().id().as_str(), &error));
            interrupt.second().await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_that_does_not_arrive_says_how_the_command_ends() {
        let client = sandboxd_client::Client::builder().url("http://127.0.0.1:9").key("any").build().unwrap();
        let other = client.sandbox("x").unwrap_err();
        assert_eq!(
            uninterrupted_note("sbx_1", &other),
            format!("sbx: cannot interrupt the command: {other}")
        );
        let full = crate::limit_wait::tests::refused("RESOURCE_EXHAUSTED", "{}");
        let note = uninterrupted_note("sbx_1", &full);
        assert!(note.contains("is paused") && note.contains("'sbx rm sbx_1'"), "{note}");
    }
}
