//! `sbx exec`: runs a command in an existing sandbox.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use base::SetSome;
use sandboxd_client::{Client, Detached, Execute};
use serde_json::json;

use super::command_line;
use super::detached::{Followed, cancel, run_detached};
use super::follow::{follow, with_input};
use super::input::{Input, ended};
use super::named_sandbox::find_sandbox;
use super::pause_watch::StillPaused;
use super::session::{self, TerminalOptions};
use super::variables::variables;
use crate::cli::{BUFFERED_MAX, DETACHED_MAX, ExecArguments};
use crate::interrupt::Interrupt;
use crate::output::OutputFormat;

/// Runs the command and returns its exit code; with `--detach` prints the id of its execution.
pub async fn exec(client: &Client, format: OutputFormat, mut arguments: ExecArguments) -> Result<ExitCode> {
    // Of -dit the d counts, as in Docker: there is no terminal, and no input from one.
    if arguments.tty && arguments.detach {
        arguments.running.stdin = false;
    } else if arguments.tty {
        return exec_on_terminal(client, &arguments).await;
    }
    let interrupt = Interrupt::listen()?;
    let sandbox = find_sandbox(client, &arguments.id).await?;
    let mut execute = sandbox.execute(command_line::bash_command(&arguments.command));
    for (name, value) in variables(&arguments.env_file, &arguments.env)? {
        execute = execute.env(name, value);
    }
    execute = execute
        .set_some(arguments.workdir.as_ref(), Execute::cwd)
        .set_some(arguments.user.as_ref(), Execute::user);
    if arguments.no_resume {
        execute = execute.without_resume();
    }
    let running = &arguments.running;
    let input = tokio::select! {
        input = Input::read(running) => input?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    running.check()?;
    if arguments.detach {
        // As with 'run --detach': nobody may ever read the output, and a command that waits for a reader looks like one that hangs.
        let execute = execute.reader_timeout(arguments.reader_timeout.unwrap_or(Duration::ZERO));
        let (execute, streamed) = with_input(execute, running, input);
        let started = execute.detached().await?;
        if let Some(streamed) = streamed {
            let sent = tokio::select! {
                sent = streamed.write_stdin(&started) => sent.map(|()| None),
                () = ended(&started) => Ok(None),
                code = interrupt.first() => Ok(Some(ExitCode::from(code))),
            };
            // Otherwise the command would wait for the rest of its input, and its execution id was not printed.
            if !matches!(sent, Ok(None)) {
                cancel(&started).await;
            }
            if let Some(code) = sent? {
                return Ok(code);
            }
        }
        let ids = json!({ "executionId": started.id(), "sandboxId": started.sandbox().id() });
        return format.print_id(&ids, started.id());
    }
    // The sandbox ends earlier, unless it is kept for longer.
    let longest = if running.buffered { BUFFERED_MAX } else { DETACHED_MAX };
    let (execute, streamed) = with_input(execute.timeout(longest), running, input);
    if running.buffered {
        return follow(&sandbox, execute, running, format, &interrupt).await;
    }
    match run_detached(execute, streamed, format, &interrupt).await? {
        Followed::Ended(code) => Ok(code),
        Followed::StillPaused(still_paused, command) => Err(with_way_on(&still_paused, &command)),
    }
}

/// The command was not ended: it goes on with the sandbox.
fn with_way_on(still_paused: &StillPaused, command: &Detached) -> anyhow::Error {
    let (id, execution) = (command.sandbox().id(), command.id());
    anyhow!(
        "{still_paused}; when the host has space again, 'sbx resume {id}' continues both, and 'sbx logs -f {id} {execution}' follows it"
    )
}

/// Runs the command on a terminal in the sandbox, which passes on all input.
async fn exec_on_terminal(client: &Client, arguments: &ExecArguments) -> Result<ExitCode> {
    session::check_terminal()?;
    let env = variables(&arguments.env_file, &arguments.env)?;
    let sandbox = find_sandbox(client, &arguments.id).await?;
    let options = TerminalOptions {
        env,
        workdir: arguments.workdir.as_deref(),
        user: arguments.user.as_deref(),
        timeout: arguments.running.timeout,
        no_resume: arguments.no_resume,
        command: &arguments.command,
    };
    let terminal = session::open(&sandbox, options).await?;
    session::run(&sandbox, terminal).await
}
