//! `sbx exec`: a command in a sandbox that is there.

use std::process::ExitCode;

use anyhow::Result;
use sandboxd_client::Client;
use serde_json::json;

use super::follow::{Shown, follow, prepared};
use super::input::Input;
use super::tended::{TIMEOUT, cancel, tended};
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
    let running = &arguments.running;
    let shown = if as_json { Shown::Json } else { Shown::AsItIs };
    let input = tokio::select! {
        input = Input::read(running) => input?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    running.check(input.is_raw())?;
    if arguments.detach {
        let (execute, raw) = prepared(execute, running, input);
        let started = execute.detached().await?;
        if let Some(raw) = raw {
            let fed = tokio::select! {
                fed = raw.feed(&started) => fed.map(|()| None),
                code = interrupt.first() => Ok(Some(ExitCode::from(code))),
            };
            // With half of its input it would wait for ever, and nobody knows its id.
            if !matches!(fed, Ok(None)) {
                cancel(&started).await;
            }
            if let Some(code) = fed? {
                return Ok(code);
            }
        }
        if as_json {
            output::json(&json!({ "executionId": started.id(), "sandboxId": started.sandbox().id() }))?;
        } else {
            output::text(&format!("{}\n", started.id()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let (execute, raw) = prepared(execute.timeout(TIMEOUT), running, input);
    if running.buffered {
        return follow(execute, running, shown, &interrupt).await;
    }
    tended(execute, raw, shown, &interrupt).await
}
