//! Runs a command within one request, prints its output, and returns its exit code. Called by `run` and `exec`.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use futures_util::{FutureExt, Stream, StreamExt};
use sandboxd_client::{Detached, Execute, Following, Output};
use serde_json::{Value, json};

use super::input::{Input, Raw};
use crate::cli::Running;
use crate::interrupt::Interrupt;
use crate::output::{self, note};

/// Exit code of a command that could not start, as in shells.
const EXIT_CODE_NOT_STARTED: u8 = 126;
const BY_SIGNAL: u8 = 128;
const BUFFER: usize = 64 << 10;

/// How output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputFormat {
    /// As the command wrote it.
    Plain,
    /// One line of JSON per event.
    Json,
}

/// Runs the command. A slow reader of the output slows the command, so no output is lost. On Ctrl-C the request is
/// dropped, and the service kills the command.
pub async fn follow(
    execute: Execute,
    running: &Running,
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
pub fn with_input(mut execute: Execute, running: &Running, input: Input) -> (Execute, Option<Raw>) {
    if let Some(timeout) = running.timeout {
        execute = execute.timeout(timeout);
    }
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
    Ok(report_end(result.exit_code, result.signal.as_deref()))
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
            ensure!(!printer.is_incomplete, "part of the output was lost because it was read too slowly");
            return Ok(report_end(done.exit_code, done.signal.as_deref()));
        }
    }
}

/// Prints to standard output and standard error.
pub struct Printer {
    out: io::BufWriter<io::Stdout>,
    format: OutputFormat,
    /// Some output was dropped by the service.
    is_incomplete: bool,
}

impl Printer {
    pub fn new(format: OutputFormat) -> Self {
        Self { out: io::BufWriter::with_capacity(BUFFER, io::stdout()), format, is_incomplete: false }
    }

    pub fn print(&mut self, event: &Output) -> Result<()> {
        self.is_incomplete |= matches!(event, Output::Dropped(_));
        match (self.format, event) {
            (OutputFormat::Json, event) => writeln!(self.out, "{}", as_json(event)?)?,
            (OutputFormat::Plain, Output::Stdout(piece)) => self.out.write_all(piece.as_bytes())?,
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

    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()?;
        // `io::stdout` buffers incomplete lines.
        Ok(io::stdout().flush()?)
    }
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

/// The exit code of sbx for the result of a command.
pub fn report_end(exit_code: Option<i32>, signal: Option<&str>) -> ExitCode {
    if let Some(signal) = signal.filter(|_| io::stderr().is_terminal()) {
        note(&format!("sbx: the command was killed by {signal}"));
    }
    ExitCode::from(code(exit_code, signal))
}

pub fn code(exit_code: Option<i32>, signal: Option<&str>) -> u8 {
    match (exit_code, signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => BY_SIGNAL + number(signal),
        (None, None) => EXIT_CODE_NOT_STARTED,
    }
}

/// The number of a signal on Linux.
fn number(signal: &str) -> u8 {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE",
        "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ",
        "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    let name = signal.strip_prefix("SIG").unwrap_or(signal);
    let at = NAMES.iter().position(|known| *known == name);
    at.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let codes = [
            (Some(0), None),
            (Some(3), None),
            (None, Some("SIGKILL")),
            (None, Some("SIGTERM")),
            (None, None),
        ];
        assert_eq!(codes.map(|(exit, signal)| code(exit, signal)), [0, 3, 137, 143, 126]);
        assert_eq!((number("SIGSYS"), number("SIGRTMIN+3")), (31, 0));
    }
}
