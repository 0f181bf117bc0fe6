//! `sbx exec`: a command in a sandbox that is there.
//!
//! It runs detached, and we follow it: so a lost connection is made again, and Ctrl-C interrupts the command, as it would here,
//! instead of killing it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use client::{Client, Detached, Execute, Output};
use futures_util::StreamExt;
use serde_json::json;

use super::follow::{Printer, Shown, ended, follow, prepared};
use super::words;
use crate::cli::ExecArguments;
use crate::interrupt::{INTERRUPTED, Interrupt};
use crate::output;

/// The service's own default for a command that is waited for.
const TIMEOUT: Duration = Duration::from_secs(60);

pub async fn exec(client: &Client, as_json: bool, arguments: ExecArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let mut execute = client.sandbox(&arguments.id)?.execute(words::line(&arguments.command));
    for word in &arguments.env {
        let (name, value) = words::variable(word)?;
        execute = execute.env(name, value);
    }
    if let Some(workdir) = &arguments.workdir {
        execute = execute.cwd(workdir);
    }
    if arguments.no_resume {
        execute = execute.without_resume();
    }
    let shown = if as_json { Shown::Json } else { Shown::AsItIs };
    if arguments.detach {
        let started = prepared(execute, &arguments.running).await?.detached().await?;
        if as_json {
            output::json(&json!({ "executionId": started.id(), "sandboxId": started.sandbox().id() }))?;
        } else {
            output::text(&format!("{}\n", started.id()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.running.buffered {
        return follow(execute, &arguments.running, shown, &interrupt).await;
    }
    // Should this program be killed, the command ends by itself.
    let execute = prepared(execute.timeout(TIMEOUT), &arguments.running);
    tokio::select! {
        execute = execute => tended(execute?, shown, &interrupt).await,
        code = interrupt.first() => Ok(ExitCode::from(code)),
    }
}

async fn tended(execute: Execute, shown: Shown, interrupt: &Interrupt) -> Result<ExitCode> {
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
    if let Err(error) = command.signal(name).await {
        // It may have ended just now. If not, there is the second.
        output::note(&format!("sbx: the command could not be interrupted: {error}"));
    }
    interrupt.second().await
}
