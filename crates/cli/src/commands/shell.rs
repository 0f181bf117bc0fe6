//! `sbx shell`: an interactive terminal in a sandbox.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;

use super::named_sandbox::find_sandbox;
use super::session::{self, TerminalOptions};
use super::variables::variables;
use crate::cli::ShellArguments;
use crate::tty;

/// Connects the terminal with a new shell, or with a running one, until either ends.
pub async fn shell(client: &Client, arguments: ShellArguments) -> Result<ExitCode> {
    session::check_terminal()?;
    let sandbox = find_sandbox(client, &arguments.id).await?;
    let terminal = match &arguments.attach {
        Some(execution) => {
            let terminal = sandbox.execution(execution)?.attach().await?;
            if let Some((cols, rows)) = tty::size() {
                terminal.resize(cols, rows).await?;
            }
            terminal
        }
        None => {
            let options = TerminalOptions {
                env: variables(&[], &arguments.env)?,
                workdir: arguments.workdir.as_deref(),
                user: arguments.user.as_deref(),
                timeout: None,
                no_resume: false,
                command: &arguments.command,
            };
            session::open(&sandbox, options).await?
        }
    };
    session::run(&sandbox, terminal).await
}
