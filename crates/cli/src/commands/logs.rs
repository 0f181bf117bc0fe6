//! `sbx logs`: shows the output of a command that was started detached, or lists executions.

use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use sandboxd_client::{
    Client, Detached, ExecutionId, ExecutionOutput, ExecutionState, ExecutionView, OutputBytes,
    OutputEncoding, Sandbox,
};
use serde_json::Value;

use super::follow::{print_detached, print_detached_from};
use super::main_command::main_command;
use super::named_sandbox::find_sandbox;
use super::stored_output::{Tail, print_stored, read_stored};
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
    let id = &arguments.id;
    if id.parse::<ExecutionId>().is_ok() {
        bail!("{id} is an execution; its sandbox comes first: 'sbx logs SANDBOX {id}'");
    }
    let sandbox = find_sandbox(client, id).await?;
    if arguments.list {
        return list(&sandbox, format, arguments.quiet).await;
    }
    let execution = match &arguments.execution {
        Some(execution) => sandbox.execution(execution)?,
        None => chosen(&sandbox, arguments).await?,
    };
    if arguments.follow {
        let interrupt = Interrupt::listen()?;
        return tokio::select! {
            done = follow(&execution, arguments.tail, format) => done,
            code = interrupt.first() => Ok(ExitCode::from(code)),
        };
    }
    let view = execution.status().await?;
    match format {
        OutputFormat::Plain => print(&execution, &view.output_end, arguments.tail).await?,
        OutputFormat::Json => print_json(&execution, arguments.tail).await?,
    }
    ensure!(view.state != ExecutionState::Lost, "{}", lost_text(&view));
    Ok(ExitCode::SUCCESS)
}

/// The command whose output is meant if none is named. If there are several commands, the chosen one is named on standard error.
async fn chosen(sandbox: &Sandbox, arguments: &LogsArguments) -> Result<Detached> {
    let all = sandbox.executions().await?;
    let Some(view) = main_command(&all) else {
        bail!("no command has run in the sandbox; 'sbx exec --detach' starts one");
    };
    let named = format!("{}: {}", view.execution_id, printable(&first_line(&view.command)));
    if arguments.follow {
        output::note(&format!("sbx: following {named}"));
    } else if all.iter().filter(|view| view.terminal.is_none()).count() > 1 {
        let id = &arguments.id;
        output::note(&format!("sbx: this is {named}; 'sbx logs --list {id}' lists the other commands"));
    }
    Ok(sandbox.execution(view.execution_id.as_str())?)
}

/// Why the output of an execution says nothing about its end.
fn lost_text(view: &ExecutionView) -> String {
    let why = view.message.as_deref().map_or_else(String::new, |why| format!(": {why}"));
    format!("how {} ended is not known (state 'lost'){why}", view.execution_id)
}

/// Prints what is stored before `end`, or the last lines of it.
async fn print(execution: &Detached, end: &str, tail: Option<usize>) -> Result<()> {
    match tail {
        None | Some(usize::MAX) => print_stored(execution, end).await,
        Some(lines) => {
            let mut tail = Tail::new(lines);
            read_stored(execution, end, |channel, bytes| tail.add(channel, bytes)).await?;
            tail.print()
        }
    }
}

async fn print_json(execution: &Detached, tail: Option<usize>) -> Result<()> {
    let all = all_output(execution).await?;
    let text = |output| String::from_utf8_lossy(last_lines(output, tail.unwrap_or(usize::MAX))).into_owned();
    let (stdout, stderr) = (text(&all.stdout), text(&all.stderr));
    output::json(&ExecutionOutput { stdout, stderr, encoding: OutputEncoding::Text, ..all.result })
}

/// The last lines of an output. An incomplete line at its end counts as one.
fn last_lines(output: &[u8], lines: usize) -> &[u8] {
    let Some(before) = lines.checked_sub(1) else { return &[] };
    let complete = output.strip_suffix(b"\n").unwrap_or(output);
    let mut ends = complete.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    ends.nth(before).map_or(output, |(at, _)| &output[at + 1..])
}

/// All pages of the output as one.
async fn all_output(execution: &Detached) -> Result<OutputBytes<ExecutionOutput>> {
    let mut page = execution.output_bytes(None).await?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut is_dropped = false;
    loop {
        stdout.extend_from_slice(&page.stdout);
        stderr.extend_from_slice(&page.stderr);
        is_dropped |= page.result.dropped;
        if !page.result.more || stdout.len() + stderr.len() >= MAX_OUTPUT {
            page.result.dropped = is_dropped;
            return Ok(OutputBytes { stdout: stdout.into(), stderr: stderr.into(), result: page.result });
        }
        page = execution.output_bytes(Some(&page.result.next)).await?;
    }
}

/// Follows the output to the end of the command. Returns the exit code of the command, as `exec` does.
/// `tail`: how many lines of what is stored to begin with.
async fn follow(execution: &Detached, tail: Option<usize>, format: OutputFormat) -> Result<ExitCode> {
    let Some(lines) = tail else { return Ok(print_detached(execution, format).await?.code) };
    ensure!(format == OutputFormat::Plain, "--tail with --follow prints text; leave --json out");
    let end = execution.status().await?.output_end;
    print(execution, &end, Some(lines)).await?;
    Ok(print_detached_from(execution, end).await?.code)
}

async fn list(sandbox: &Sandbox, format: OutputFormat, quiet: bool) -> Result<ExitCode> {
    let all = sandbox.executions().await?;
    let items = all.iter().map(item).collect::<Result<Vec<_>>>()?;
    format.print(&items, |paint| {
        if quiet {
            return all.iter().map(|view| format!("{}\n", view.execution_id)).collect();
        }
        let rows = all.iter().map(row);
        table(["EXECUTION", "STATE", "EXIT", "TOOK", "COMMAND"], rows, paint)
    })
}

/// An execution with its id as the other lists of sbx call it, too.
fn item(view: &ExecutionView) -> Result<Value> {
    let mut item = serde_json::to_value(view)?;
    item["id"] = Value::from(view.execution_id.as_str());
    Ok(item)
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

/// The first line of a command, and whether there are more.
pub fn first_line(command: &str) -> String {
    let mut lines = command.lines();
    let first = lines.next().unwrap_or_default();
    if lines.next().is_some() { format!("{first} …") } else { first.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::main_command::tests::view;

    #[test]
    fn the_last_lines_are_whole_lines() {
        for (text, lines, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\n", 5, "a\nb\n"),
            ("a\n\n", 1, "\n"),
            ("a\n", 0, ""),
            ("", 3, ""),
            ("a\nb\n", usize::MAX, "a\nb\n"),
        ] {
            assert_eq!(last_lines(text.as_bytes(), lines), expected.as_bytes(), "{text:?} {lines}");
        }
    }

    #[test]
    fn a_lost_command_is_named_with_the_reason() {
        let lost = view(&serde_json::json!({ "state": "lost", "message": "the host was restarted" }));
        assert_eq!(
            lost_text(&lost),
            "how ex_00000000000000000000 ended is not known (state 'lost'): the host was restarted"
        );
    }

    #[test]
    fn a_row_says_how_a_command_ended() {
        let cells = |changes: serde_json::Value| row(&view(&changes)).map(|(text, _)| text);
        let exited = cells(serde_json::json!({ "exitCode": 3, "durationMs": 61_000 }));
        assert_eq!(exited, ["ex_00000000000000000000", "exited", "3", "1m", "make"]);
        let killed = cells(serde_json::json!({ "signal": "SIGKILL", "reason": "timeout" }));
        assert_eq!(killed[2..4], ["SIGKILL (timeout)", "-"]);
        let running = cells(serde_json::json!({ "state": "running", "command": "" }));
        assert_eq!(running[1..], ["running", "-", "-", "(shell)"]);
    }

    #[test]
    fn an_item_of_the_list_has_its_id_under_both_names() {
        let shown = item(&view(&serde_json::json!({}))).unwrap();
        assert_eq!(shown["id"], "ex_00000000000000000000");
        assert_eq!(shown["id"], shown["executionId"]);
    }

    #[test]
    fn the_state_has_a_tone() {
        let tone = |state: &str| row(&view(&serde_json::json!({ "state": state })))[1].1;
        assert_eq!([tone("running"), tone("exited"), tone("lost")], [Tone::Good, Tone::Faint, Tone::Bad]);
    }

    #[test]
    fn a_command_of_several_lines_is_shown_by_its_first() {
        for (command, shown) in [("a", "a"), ("a\nb", "a …"), ("a\n", "a"), ("\na", " …"), ("", "")] {
            assert_eq!(first_line(command), shown, "{command:?}");
        }
    }
}
