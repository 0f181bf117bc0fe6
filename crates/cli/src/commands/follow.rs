//! Runs a command within one request, prints its output, and returns its exit code. Called by `run` and `exec`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use base::SetSome;
use futures_util::{FutureExt, Stream, StreamExt};
use sandboxd_client::{Detached, Execute, Following, Output};
use serde_json::{Value, json};

use super::end::{self, CommandEnd};
use super::input::{Input, Raw};
use crate::cli::CommandOptions;
use crate::failure::SBX_FAILURE;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat, note};

const BUFFER: usize = 64 << 10;
const REPLACED: &str =
    "sbx: the output has U+FFFD, which replaces bytes that are not UTF-8; 'sbx cp' copies files unchanged";

/// Runs the command. A slow reader of the output slows the command, so no output is lost. On Ctrl-C the request is
/// dropped, and the service kills the command.
pub async fn follow(
    execute: Execute,
    running: &CommandOptions,
    format: OutputFormat,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    let work = async {
        if running.buffered {
            run_buffered(execute, format).await
        } else {
            let execute = if format == OutputFormat::Plain { execute.with_line_ends() } else { execute };
            print_stream(execute.stream().await?, format).await
        }
    };
    tokio::select! {
        code = work => code,
        code = interrupt.first() => Ok(ExitCode::from(code)),
    }
}

/// Sets input and time limit. Returns the input that must be sent while the command runs.
pub fn with_input(mut execute: Execute, running: &CommandOptions, input: Input) -> (Execute, Option<Raw>) {
    execute = execute.set_some(running.timeout, Execute::timeout);
    input.add_to(execute)
}

async fn run_buffered(execute: Execute, format: OutputFormat) -> Result<ExitCode> {
    let result = execute.killed_on_drop().await?;
    match format {
        OutputFormat::Json => output::json(&result)?,
        OutputFormat::Plain => {
            io::stderr().write_all(result.stderr.as_bytes())?;
            output::text(&result.stdout)?;
        }
    }
    let code = end::report((&result).into());
    let is_replaced = format == OutputFormat::Plain && has_replaced_bytes(&result.stdout);
    Ok(if is_replaced { report_replaced(code) } else { code })
}

/// The output stream of a detached command in an output format.
pub fn follow_detached(command: &Detached, format: OutputFormat) -> Following {
    match format {
        OutputFormat::Plain => command.follow_with_line_ends(),
        OutputFormat::Json => command.follow(),
    }
}

/// Prints the stream to its end and returns the exit code.
pub async fn print_stream(
    mut stream: impl Stream<Item = Result<Output, sandboxd_client::Error>> + Unpin,
    format: OutputFormat,
) -> Result<ExitCode> {
    let mut printer = Printer::new(format);
    loop {
        // Flushes only when no event is available, so that many events share one write.
        let event = match stream.next().now_or_never() {
            Some(event) => event,
            None => {
                printer.flush()?;
                stream.next().await
            }
        };
        let event = event.context("the output ended before the command did")??;
        printer.print(&event)?;
        if let Output::Done(done) = event {
            printer.flush()?;
            ensure!(!printer.is_incomplete, "part of the output was lost; it is no longer stored");
            return Ok(printer.end((&done).into()));
        }
    }
}

/// Prints to standard output and standard error.
pub struct Printer {
    out: io::BufWriter<io::Stdout>,
    format: OutputFormat,
    /// Some output was dropped by the service.
    is_incomplete: bool,
    /// Standard output is a file or a pipe, and has U+FFFD, which the service prints in place of bytes that are not UTF-8.
    is_replaced: bool,
}

impl Printer {
    /// A printer to the standard streams of sbx.
    pub fn new(format: OutputFormat) -> Self {
        let out = io::BufWriter::with_capacity(BUFFER, io::stdout());
        Self { out, format, is_incomplete: false, is_replaced: false }
    }

    /// Prints an event of the output. Standard output is buffered until the next flush.
    pub fn print(&mut self, event: &Output) -> Result<()> {
        self.is_incomplete |= matches!(event, Output::Dropped(_));
        match (self.format, event) {
            (OutputFormat::Json, event) => writeln!(self.out, "{}", as_json(event)?)?,
            (OutputFormat::Plain, Output::Stdout(piece)) => {
                self.is_replaced |= has_replaced_bytes(piece);
                self.out.write_all(piece.as_bytes())?;
            }
            (OutputFormat::Plain, Output::Stderr(piece)) => {
                // Keeps the order if both streams are the same terminal.
                self.flush()?;
                io::stderr().write_all(piece.as_bytes())?;
            }
            (OutputFormat::Plain, Output::Dropped(bytes)) => {
                self.flush()?;
                note(&format!("sbx: {bytes} bytes of output were dropped"));
            }
            (OutputFormat::Plain, Output::Done(_)) => {}
        }
        Ok(())
    }

    /// Says how the command ended, and whether its output has replaced bytes. Returns the exit code.
    pub fn end(&self, end: CommandEnd<'_>) -> ExitCode {
        let code = end::report(end);
        if self.is_replaced { report_replaced(code) } else { code }
    }

    /// Writes what is buffered for standard output.
    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()?;
        // `io::stdout` buffers incomplete lines.
        Ok(io::stdout().flush()?)
    }
}

/// Says that the output has replaced bytes. Returns the exit code: 125 if the command succeeded, because a script would go on with a
/// damaged file.
pub fn report_replaced(code: ExitCode) -> ExitCode {
    note(REPLACED);
    if code == ExitCode::SUCCESS { ExitCode::from(SBX_FAILURE) } else { code }
}

/// Whether a file or a pipe gets text in which bytes may have been replaced.
pub fn has_replaced_bytes(output: &str) -> bool {
    output.contains(char::REPLACEMENT_CHARACTER) && !io::stdout().is_terminal()
}

fn as_json(event: &Output) -> Result<Value> {
    Ok(match event {
        Output::Stdout(line) => json!({"event": "stdout", "data": line}),
        Output::Stderr(line) => json!({"event": "stderr", "data": line}),
        Output::Dropped(bytes) => json!({"event": "dropped", "bytes": bytes}),
        Output::Done(done) => {
            let mut value = serde_json::to_value(done)?;
            value["event"] = "done".into();
            value
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_bytes_are_a_failure_unless_the_command_failed() {
        assert_eq!(report_replaced(ExitCode::SUCCESS), ExitCode::from(SBX_FAILURE));
        assert_eq!(report_replaced(ExitCode::from(3)), ExitCode::from(3));
    }
}
