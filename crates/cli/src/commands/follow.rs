//! Runs a command within one request, prints its output, and returns its exit code. Called by `run` and `exec`.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use base::SetSome;
use bytes::Bytes;
use futures_util::{FutureExt, Stream, StreamExt};
use sandboxd_client::{Detached, Execute, Output, Sandbox};
use serde_json::{Value, json};

use super::end;
use super::input::{Input, StreamedInput};
use super::pause_watch::watch_pauses;
use crate::cli::CommandOptions;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat, note};

const BUFFER: usize = 64 << 10;

/// Runs the command in `sandbox`. A slow reader of the output slows the command, so no output is lost. On Ctrl-C, and if the sandbox stays
/// paused for too long, the request is dropped, and the service kills the command.
pub async fn follow(
    sandbox: &Sandbox,
    execute: Execute,
    running: &CommandOptions,
    format: OutputFormat,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    let work = async {
        if running.buffered {
            run_buffered(execute, format).await
        } else {
            let printed = match format {
                OutputFormat::Plain => {
                    print_stream(execute.stream_bytes().await?, Printer::print_bytes).await
                }
                OutputFormat::Json => print_stream(execute.stream().await?, Printer::print_json).await,
            };
            printed?.complete()
        }
    };
    tokio::select! {
        code = work => code,
        code = interrupt.first() => Ok(ExitCode::from(code)),
        still_paused = watch_pauses(sandbox) => Err(still_paused.into()),
    }
}

/// Sets input and time limit. Returns the input that must be sent while the command runs.
pub fn with_input(
    execute: Execute,
    running: &CommandOptions,
    input: Input,
) -> (Execute, Option<StreamedInput>) {
    input.add_to(execute.set_some(running.timeout, Execute::timeout))
}

async fn run_buffered(execute: Execute, format: OutputFormat) -> Result<ExitCode> {
    let execute = execute.killed_on_drop();
    let result = match format {
        OutputFormat::Json => {
            let result = execute.await?;
            output::json(&result)?;
            result
        }
        OutputFormat::Plain => {
            let output = execute.bytes().await?;
            io::stderr().write_all(&output.stderr)?;
            output::bytes(&output.stdout)?;
            output.result
        }
    };
    Ok(end::report((&result).into()))
}

/// Prints the output of a detached command to its end.
pub async fn print_detached(command: &Detached, format: OutputFormat) -> Result<Printed> {
    match format {
        OutputFormat::Plain => print_stream(command.follow_bytes(), Printer::print_bytes).await,
        OutputFormat::Json => print_stream(command.follow(), Printer::print_json).await,
    }
}

/// Prints the output of a detached command after an offset to its end.
pub async fn print_detached_from(command: &Detached, offset: String) -> Result<Printed> {
    print_stream(command.follow_bytes_from(offset), Printer::print_bytes).await
}

/// An output that was printed.
pub struct Printed {
    /// The exit code of the command.
    pub code: ExitCode,
    /// Some output was dropped by the service.
    is_incomplete: bool,
}

impl Printed {
    /// The exit code, if no output is missing.
    pub fn complete(self) -> Result<ExitCode> {
        ensure!(!self.is_incomplete, "part of the output was lost; it is no longer stored");
        Ok(self.code)
    }
}

/// Prints the stream to its end.
async fn print_stream<T>(
    mut stream: impl Stream<Item = Result<Output<T>, sandboxd_client::Error>> + Unpin,
    print: impl Fn(&mut Printer, &Output<T>) -> Result<()>,
) -> Result<Printed> {
    let mut printer = Printer::new();
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
        print(&mut printer, &event)?;
        match event {
            Output::Dropped(_) => printer.is_incomplete = true,
            Output::Done(done) => {
                printer.flush()?;
                let is_incomplete = printer.is_incomplete;
                return Ok(Printed { code: end::report((&done).into()), is_incomplete });
            }
            Output::Stdout(_) | Output::Stderr(_) => {}
        }
    }
}

/// Prints to standard output and standard error.
struct Printer {
    out: io::BufWriter<io::Stdout>,
    is_incomplete: bool,
}

impl Printer {
    fn new() -> Self {
        Self { out: io::BufWriter::with_capacity(BUFFER, io::stdout()), is_incomplete: false }
    }

    /// Prints an event of the output as the command wrote it. Standard output is buffered until the next flush.
    fn print_bytes(&mut self, event: &Output<Bytes>) -> Result<()> {
        match event {
            Output::Stdout(bytes) => self.out.write_all(bytes)?,
            Output::Stderr(bytes) => {
                // Keeps the order if both streams are the same terminal.
                self.flush()?;
                io::stderr().write_all(bytes)?;
            }
            Output::Dropped(count) => {
                self.flush()?;
                note(&format!("sbx: {count} bytes of output were dropped"));
            }
            Output::Done(_) => {}
        }
        Ok(())
    }

    /// Prints an event as a line of JSON.
    fn print_json(&mut self, event: &Output) -> Result<()> {
        Ok(writeln!(self.out, "{}", as_json(event)?)?)
    }

    /// Writes what is buffered for standard output.
    fn flush(&mut self) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_an_object_that_names_it() {
        let done = sandboxd_client::Done {
            exit_code: Some(3),
            duration_ms: 5,
            signal: None,
            reason: None,
            message: None,
        };
        for (event, json) in [
            (Output::Stdout("a".to_owned()), json!({ "event": "stdout", "data": "a" })),
            (Output::Stderr(String::new()), json!({ "event": "stderr", "data": "" })),
            (Output::Dropped(7), json!({ "event": "dropped", "bytes": 7 })),
            (Output::Done(done), json!({ "event": "done", "exitCode": 3, "durationMs": 5, "signal": null })),
        ] {
            assert_eq!(as_json(&event).unwrap(), json);
        }
    }

    #[test]
    fn an_output_with_a_gap_is_no_success() {
        let printed = |is_incomplete| Printed { code: ExitCode::SUCCESS, is_incomplete };
        assert!(printed(false).complete().is_ok());
        let error = printed(true).complete().unwrap_err();
        assert!(error.to_string().contains("part of the output was lost"), "{error}");
    }

    #[tokio::test]
    async fn a_stream_that_ends_before_the_command_is_an_error() {
        let cut =
            futures_util::stream::iter([Ok::<Output<Bytes>, sandboxd_client::Error>(Output::Dropped(0))]);
        let error = print_stream(cut, |_, _| Ok(())).await.err().unwrap();
        assert_eq!(error.to_string(), "the output ended before the command did");
        let done = sandboxd_client::Done {
            exit_code: Some(0),
            duration_ms: 5,
            signal: None,
            reason: None,
            message: None,
        };
        let whole = [Ok::<Output<Bytes>, sandboxd_client::Error>(Output::Dropped(1)), Ok(Output::Done(done))];
        let printed = print_stream(futures_util::stream::iter(whole), |_, _| Ok(())).await.unwrap();
        assert!(printed.is_incomplete, "dropped bytes are remembered to the end");
    }
}
