//! `sbx exec`: a command in a sandbox that is there.

use std::process::ExitCode;

use anyhow::Result;
use client::Client;
use serde_json::json;

use super::follow::{Shown, input, prepared};
use super::tended::{TIMEOUT, tended};
use super::words;
use crate::cli::ExecArguments;
use crate::interrupt::Interrupt;
use crate::output;

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
    let input = tokio::select! {
        input = input(&arguments.running) => input?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    if arguments.detach {
        let started = prepared(execute, &arguments.running, input).detached().await?;
        if as_json {
            output::json(&json!({ "executionId": started.id(), "sandboxId": started.sandbox().id() }))?;
        } else {
            output::text(&format!("{}\n", started.id()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let execute = prepared(execute.timeout(TIMEOUT), &arguments.running, input);
    tended(execute, &arguments.running, shown, &interrupt).await
}
