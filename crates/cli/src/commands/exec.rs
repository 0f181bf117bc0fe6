//! `sbx exec`: a command in a sandbox that is there.

use std::process::ExitCode;

use anyhow::Result;
use client::Client;

use super::follow::{Shown, follow};
use super::words;
use crate::cli::ExecArguments;
use crate::interrupt::Interrupt;

pub async fn exec(client: &Client, json: bool, arguments: ExecArguments) -> Result<ExitCode> {
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
    let shown = if json { Shown::Json } else { Shown::AsItIs };
    follow(execute, &arguments.running, shown, &interrupt).await
}
