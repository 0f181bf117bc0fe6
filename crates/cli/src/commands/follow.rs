//! A command that is followed over its own request: its output, its exit code, and Ctrl-C. Called by `run` and `exec`.

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

/// As shells have it for what could not be started.
const NOT_STARTED: u8 = 126;
const BY_SIGNAL: u8 = 128;
const BUFFER: usize = 64 << 10;

/// How a command is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// As the command wrote it.
    AsItIs,
    /// A line of JSON each event.
    Json,
}

/// Runs it. Whoever reads slowly what it prints slows it, so that nothing is lost. Interrupted, it drops the command, upon which
/// the service kills it.
pub async fn follow(
    execute: Execute,
    running: &Running,
    shown: Shown,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    let work = async {
        if running.buffered {
            whole(execute, shown).await
        } else {
            let execute = if shown == Shown::AsItIs { execute.with_line_ends() } else { execute };
            printed(execute.stream().await?, shown).await
        }
    };
    tokio::select! {
        code = work => code,
        code = interrupt.first() => Ok(ExitCode::from(code)),
    }
}

/// With its input, and its time if one was named; and what is left to feed to it.
pub fn prepared(mut execute: Execute, running: &Running, input: Input) -> (Execute, Option<Raw>) {
    if let Some(timeout) = running.timeout {
        execute = execute.timeout(timeout);
    }
    input.given_to(execute)
}

async fn whole(execute: Execute, shown: Shown) -> Result<ExitCode> {
    let result = execute.killed_on_drop().await?;
    match shown {
        Shown::Json => output::json(&result)?,
        Shown::AsItIs => {
            io::stderr().write_all(result.stderr.as_bytes())?;
            output::text(&result.stdout)?;
        }
    }
    Ok(ended(result.exit_code, result.signal.as_deref()))
}

/// What a detached command prints, as it is to be shown.
pub fn followed(command: &Detached, shown: Shown) -> Following {
    match shown {
        Shown::AsItIs => command.follow_with_line_ends(),
        Shown::Json => command.follow(),
    }
}

/// Prints to the end, and says how it ended.
pub async fn printed(
    mut stream: impl Stream<Item = Result<Output, sandboxd_client::Error>> + Unpin,
    shown: Shown,
) -> Result<ExitCode> {
    let mut printer = Printer::new(shown);
    loop {
        // What is there already is printed in one go; then the reader sees it before anything is waited for.
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
            ensure!(!printer.is_incomplete, "the output was read too slowly, and a part of it is lost");
            return Ok(ended(done.exit_code, done.signal.as_deref()));
        }
    }
}

/// Both outputs of ours.
pub struct Printer {
    out: io::BufWriter<io::Stdout>,
    shown: Shown,
    /// Something was not kept until it was asked for.
    is_incomplete: bool,
}

impl Printer {
    pub fn new(shown: Shown) -> Self {
        Self { out: io::BufWriter::with_capacity(BUFFER, io::stdout()), shown, is_incomplete: false }
    }

    pub fn print(&mut self, event: &Output) -> Result<()> {
        self.is_incomplete |= matches!(event, Output::Dropped(_));
        match (self.shown, event) {
            (Shown::Json, event) => writeln!(self.out, "{}", as_json(event)?)?,
            (Shown::AsItIs, Output::Stdout(piece)) => self.out.write_all(piece.as_bytes())?,
            (Shown::AsItIs, Output::Stderr(piece)) => {
                // In the order in which they came, where both are one terminal.
                self.flush()?;
                io::stderr().write_all(piece.as_bytes())?;
            }
            (Shown::AsItIs, Output::Dropped(bytes)) => {
                self.flush()?;
                note(&format!("sbx: {bytes} bytes of output are not kept any more"));
            }
            (Shown::AsItIs, Output::Done(_)) => {}
        }
        Ok(())
    }

    pub fn flush(&mut self) -> Result<()> {
        self.out.flush()?;
        // Standard output keeps a line that has no end yet.
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

/// Our exit code for how the command ended.
pub fn ended(exit_code: Option<i32>, signal: Option<&str>) -> ExitCode {
    if let Some(signal) = signal.filter(|_| io::stderr().is_terminal()) {
        note(&format!("sbx: the command was killed by {signal}"));
    }
    ExitCode::from(code(exit_code, signal))
}

pub fn code(exit_code: Option<i32>, signal: Option<&str>) -> u8 {
    match (exit_code, signal) {
        (Some(code), _) => u8::try_from(code).unwrap_or(u8::MAX),
        (None, Some(signal)) => BY_SIGNAL + number(signal),
        (None, None) => NOT_STARTED,
    }
}

/// Of a signal, on every Linux that runs sandboxes.
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
