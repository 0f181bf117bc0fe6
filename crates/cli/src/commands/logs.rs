//! `sbx logs`: shows the output of a detached command, or lists executions.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Result, bail};
use sandboxd_client::{Client, Detached, ExecutionOutput, ExecutionState, ExecutionView, Sandbox};

use super::follow::print_detached;
use crate::cli::LogsArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat};
use crate::style::Tone;
use crate::table::{age, plain, printable, table};

/// Limit for the output in memory. The service keeps less at a time, but a command may print as fast as its output is
/// read.
const MAX_OUTPUT: usize = 64 << 20;

/// Prints stored output, follows an execution, or lists executions, as the arguments say.
pub async fn logs(client: &Client, format: OutputFormat, arguments: &LogsArguments) -> Result<ExitCode> {
    let sandbox = client.find(&arguments.id).await?;
    let execution = match &arguments.execution {
        Some(execution) => sandbox.execution(execution)?,
        None if arguments.follow => newest(&sandbox).await?,
        None => return list(&sandbox, format).await,
    };
    if arguments.follow {
        let interrupt = Interrupt::listen()?;
        return tokio::select! {
            printed = print_detached(&execution, format) => Ok(printed?.code),
            code = interrupt.first() => Ok(ExitCode::from(code)),
        };
    }
    match format {
        OutputFormat::Plain => print(&execution).await,
        OutputFormat::Json => {
            output::json(&all_output(&execution).await?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The execution of the newest command, which is named on standard error. A terminal is not followed: 'sbx shell --attach' attaches to it.
async fn newest(sandbox: &Sandbox) -> Result<Detached> {
    let all = sandbox.executions().await?;
    let Some(view) = all.iter().find(|view| view.terminal.is_none()) else {
        bail!("no command has run in the sandbox; 'sbx exec --detach' starts one");
    };
    output::note(&format!("sbx: following {}: {}", view.execution_id, printable(&first_line(&view.command))));
    Ok(sandbox.execution(view.execution_id.as_str())?)
}

async fn print(execution: &Detached) -> Result<ExitCode> {
    let mut output = execution.output_bytes(None).await?;
    loop {
        if output.result.dropped {
            output::note("sbx: part of the output was dropped");
        }
        io::stderr().write_all(&output.stderr)?;
        output::bytes(&output.stdout)?;
        if !output.result.more {
            return Ok(ExitCode::SUCCESS);
        }
        output = execution.output_bytes(Some(&output.result.next)).await?;
    }
}

/// All pages of the output as one.
async fn all_output(execution: &Detached) -> Result<ExecutionOutput> {
    let mut all = execution.output().await?;
    while all.more && all.stdout.len() + all.stderr.len() < MAX_OUTPUT {
        let page = execution.output_after(&all.next).await?;
        all.stdout.push_str(&page.stdout);
        all.stderr.push_str(&page.stderr);
        all.dropped |= page.dropped;
        (all.next, all.more, all.state) = (page.next, page.more, page.state);
    }
    Ok(all)
}

async fn list(sandbox: &Sandbox, format: OutputFormat) -> Result<ExitCode> {
    let all = sandbox.executions().await?;
    format.print(&all, |paint| {
        let rows = all.iter().map(row);
        table(["EXECUTION", "STATE", "EXIT", "TOOK", "COMMAND"], rows, paint)
    })
}

fn row(view: &ExecutionView) -> [(String, Tone); 5] {
    let exit = match (view.exit_code, &view.signal) {
        (Some(code), _) => code.to_string(),
        (None, Some(signal)) => signal.clone(),
        (None, None) => "-".to_owned(),
    };
    let exit = match view.reason {
        Some(reason) => format!("{exit} ({reason})"),
        None => exit,
    };
    let tone = match view.state {
        ExecutionState::Running => Tone::Good,
        ExecutionState::Exited => Tone::Faint,
        ExecutionState::Lost => Tone::Bad,
    };
    let command = if view.command.is_empty() { "(shell)".to_owned() } else { first_line(&view.command) };
    [
        plain(view.execution_id.to_string()),
        (view.state.to_string(), tone),
        plain(exit),
        plain(view.duration_ms.map_or_else(|| "-".to_owned(), age)),
        (command, Tone::Bold),
    ]
}

fn first_line(command: &str) -> String {
    let mut lines = command.lines();
    let first = lines.next().unwrap_or_default();
    if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }
}
