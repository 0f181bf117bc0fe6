//! `sbx run`: one command in a sandbox of its own, which is gone when this ends, also after Ctrl-C.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use client::{Client, Sandbox};

use super::follow::{Shown, follow};
use super::words::{self, Made};
use crate::cli::RunArguments;
use crate::interrupt::Interrupt;
use crate::output::note;

/// The service's own default for a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);
/// Beyond the command's: should this program be killed, the sandbox ends by itself.
const GRACE: Duration = Duration::from_secs(60);

pub async fn run(client: &Client, json: bool, arguments: RunArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let limit = arguments.running.timeout.unwrap_or(COMMAND_TIMEOUT).saturating_add(GRACE);
    let ask = || Ok(words::new(client, &arguments.image, &arguments.new)?.timeout(limit));
    let sandbox = match words::made(ask, arguments.new.wait, &interrupt).await? {
        Made::Sandbox(sandbox) => sandbox,
        Made::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    let execute = sandbox.execute(words::line(&arguments.command));
    let shown = if json { Shown::Json } else { Shown::AsItIs };
    let result = follow(execute, &arguments.running, shown, &interrupt).await;
    remove(&sandbox).await;
    result
}

/// The command's result counts more than a sandbox that stays for a minute.
async fn remove(sandbox: &Sandbox) {
    if let Err(error) = sandbox.terminate().await {
        let id = sandbox.id();
        note(&format!("sbx: {id} could not be removed: {error}; it ends by itself, or with 'sbx rm {id}'"));
    }
}
