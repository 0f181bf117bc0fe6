//! `sbx run --detach`: starts a command in a sandbox that stays until its timeout. Called by `run`. If something fails before the command has
//! started, the sandbox is removed.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures_util::future::try_join_all;
use sandboxd_client::{Client, Detached, Sandbox};
use serde_json::json;

use super::command_line;
use super::create::{Pausable, end_text};
use super::creation::{Creation, CreationOptions, create_sandbox, remove};
use super::expose::publish;
use super::variables::variables;
use super::volume::CopiedVolume;
use crate::cli::{RunArguments, VolumeChanges};
use crate::interrupt::Interrupt;
use crate::output::{OutputFormat, note};

/// Creates the sandbox, starts the command, and prints the name or the id of the sandbox, and on standard error when it ends.
pub async fn start(client: &Client, format: OutputFormat, arguments: &RunArguments) -> Result<ExitCode> {
    ensure!(
        arguments.volume.iter().all(|volume| volume.changes != VolumeChanges::CopiedBack),
        "nothing is copied back with --detach: leave ':rw' out of -v, and copy later with 'sbx cp'"
    );
    let env = variables(&arguments.new.env_file, &arguments.new.env)?;
    let interrupt = Interrupt::listen()?;
    let request = |client: &Client, image: &str| {
        let create = command_line::create_request(client, image, &arguments.new, &env);
        // A server without requests is not idle.
        let create = create.idle_timeout(Duration::ZERO);
        match arguments.running.timeout {
            Some(timeout) => create.timeout(timeout),
            None => create,
        }
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let options = CreationOptions { client, image, wait, format, interrupt: &interrupt };
    let created = match create_sandbox(options, request).await? {
        Creation::Sandbox(sandbox) => sandbox,
        Creation::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    // With the client that waits for limits.
    let sandbox = client.sandbox(created.id().as_str())?;
    let started = tokio::select! {
        started = start_in(&sandbox, arguments) => started,
        code = interrupt.first() => {
            remove(&sandbox).await;
            return Ok(ExitCode::from(code));
        }
    };
    let execution = match started {
        Ok(execution) => execution,
        Err(error) => {
            remove(&sandbox).await;
            return Err(error);
        }
    };
    let name = &arguments.new.name;
    let shown = name.as_deref().unwrap_or(sandbox.id().as_str());
    let execution_id = execution.as_ref().map(Detached::id);
    let ids = json!({ "sandboxId": sandbox.id(), "name": name, "executionId": execution_id });
    let code = format.print_id(&ids, &shown)?;
    let view = created.known().filter(|_| format == OutputFormat::Plain);
    if let Some(text) = view.and_then(|view| end_text(&view, Pausable::No)) {
        note(&text);
    }
    Ok(code)
}

/// Copies the volumes, exposes the ports and starts the command. `None` without a command, which `-dit IMAGE` does not need.
async fn start_in(sandbox: &Sandbox, arguments: &RunArguments) -> Result<Option<Detached>> {
    let user = arguments.user.as_deref();
    try_join_all(arguments.volume.iter().map(|volume| CopiedVolume::copy_in(sandbox, volume, user))).await?;
    publish(sandbox, &arguments.new).await?;
    if arguments.command.is_empty() {
        return Ok(None);
    }
    let execute = sandbox.execute(command_line::bash_command(&arguments.command));
    // Nobody may ever read the log of a server, which must not wait for a reader.
    let mut execute = execute.reader_timeout(Duration::ZERO);
    if let Some(user) = &arguments.user {
        execute = execute.user(user);
    }
    Ok(Some(execute.detached().await?))
}
