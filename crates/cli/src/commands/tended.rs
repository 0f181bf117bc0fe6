//! A command that is followed to its end while somebody may interrupt it. Called by `exec`, and by `run` on
//! a terminal, or where its command takes long or is fed.
//!
//! It runs detached: so a lost connection is made again, and Ctrl-C interrupts the command, as it would here, instead of killing it.
//! Nobody who reads slowly slows it, and the service keeps a bounded part of what was not read: a hole in it is a failure.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::{Either, select};
use sandboxd_client::{Detached, Execute};

use super::follow::{Shown, followed, printed};
use super::input::Raw;
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::output;

/// The service's own default for a command that is waited for.
pub const TIMEOUT: Duration = Duration::from_secs(60);
/// For the end of a command that nobody follows any more. What comes after it, such as the end of its sandbox, has to have its time.
const CANCEL: Duration = Duration::from_secs(1);

/// Runs it, within the time that it was given: should this program be killed, the command ends by itself. The first Ctrl-C is the
/// command's; at the second nobody waits for its end any more, and it is killed. What it is fed it is fed meanwhile.
pub async fn tended(
    execute: Execute,
    raw: Option<Raw>,
    shown: Shown,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    let command = execute.detached().await?;
    interrupt.is_handled();
    let code = tokio::select! {
        code = worked(&command, raw, shown) => code,
        code = interrupted(&command, interrupt) => {
            cancel(&command).await;
            return Ok(ExitCode::from(code));
        }
    };
    if code.is_err() {
        cancel(&command).await;
    }
    code
}

/// To its end, and not until it has read all that it is fed: it may want no more.
async fn worked(command: &Detached, raw: Option<Raw>, shown: Shown) -> Result<ExitCode> {
    let printing = std::pin::pin!(printed(followed(command, shown), shown));
    let Some(raw) = raw else { return printing.await };
    match select(printing, std::pin::pin!(raw.feed(command))).await {
        Either::Left((code, _)) => code,
        Either::Right((fed, printing)) => {
            fed?;
            printing.await
        }
    }
}

/// Nobody sees how it ends, so it ends now. Where that fails its time ends it.
pub async fn cancel(command: &Detached) {
    let _ = tokio::time::timeout(CANCEL, command.cancel()).await;
}

/// Hands the first signal on to the command; ready at the second, which waits for nothing.
async fn interrupted(command: &Detached, interrupt: &Interrupt) -> u8 {
    let name = if interrupt.first().await == INTERRUPTED { "SIGINT" } else { "SIGTERM" };
    tokio::select! {
        biased;
        code = interrupt.second() => code,
        Err(error) = command.signal(name) => {
            // It may have ended just now. If not, there is the second.
            output::note(&format!("sbx: the command could not be interrupted: {error}"));
            interrupt.second().await
        }
    }
}
