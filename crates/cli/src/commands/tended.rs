//! A command that is followed to its end while somebody may interrupt it. Called by `exec` and by `run`.
//!
//! It runs detached: so a lost connection is made again, and Ctrl-C interrupts the command, as it would here, instead of killing it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use client::{Detached, Execute, Output};
use futures_util::StreamExt;

use super::follow::{Printer, Shown, buffered, ended, prepared};
use crate::cli::Running;
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::output;

/// The service's own default for a command that is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs it. The first Ctrl-C is the command's; at the second nobody waits for its end any more, and it is killed. One that is shown at
/// its end alone is killed at the first.
pub async fn tended(
    execute: Execute,
    running: &Running,
    shown: Shown,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    if running.buffered {
        return buffered(execute, running, shown, interrupt).await;
    }
    // Should this program be killed, the command ends by itself.
    let execute = tokio::select! {
        execute = prepared(execute.timeout(TIMEOUT), running) => execute?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    let command = execute.detached().await?;
    interrupt.is_handled();
    tokio::select! {
        code = printed(&command, shown) => code,
        code = interrupted(&command, interrupt) => {
            // Nobody sees how it ends, so it ends now.
            command.cancel().await?;
            Ok(ExitCode::from(code))
        }
    }
}

/// Its output to the end, and how it ended.
async fn printed(command: &Detached, shown: Shown) -> Result<ExitCode> {
    let mut printer = Printer::new(shown);
    let mut output = command.follow();
    while let Some(event) = output.next().await {
        let event = event?;
        printer.print(&event)?;
        printer.flush()?;
        if let Output::Done(done) = event {
            return Ok(ended(done.exit_code, done.signal.as_deref()));
        }
    }
    anyhow::bail!("the output ended before the command did")
}

/// Hands the first signal on to the command; ready at the second.
async fn interrupted(command: &Detached, interrupt: &Interrupt) -> u8 {
    let name = if interrupt.first().await == INTERRUPTED { "SIGINT" } else { "SIGTERM" };
    let handed_on = async {
        if let Err(error) = command.signal(name).await {
            // It may have ended just now. If not, there is the second.
            output::note(&format!("sbx: the command could not be interrupted: {error}"));
        }
        std::future::pending::<u8>().await
    };
    tokio::select! {
        code = interrupt.second() => code,
        code = handed_on => code,
    }
}
