//! `sbx code`: runs code in the code interpreter of a sandbox.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};
use base::SetSome;
use futures_util::TryStreamExt;
use sandboxd_client::{Client, CodeException, CodeOutput, RunCode};

use super::code_results::Results;
use super::named_sandbox::find_sandbox;
use super::variables::variables;
use crate::cli::CodeArguments;
use crate::interrupt::Interrupt;
use crate::output::{self, OutputFormat};

/// Exit code of code that raised an exception without an exit code of its own.
const EXIT_CODE_RAISED: u8 = 1;

/// Runs the code, prints what it writes and its results, and returns the exit code that the code chose.
pub async fn code(client: &Client, format: OutputFormat, arguments: CodeArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let CodeArguments { id, language, context, env, timeout, output: dir, code } = arguments;
    let code = match code {
        Some(code) if code != "-" => code,
        _ => tokio::task::spawn_blocking(read_stdin).await??,
    };
    let mut run = find_sandbox(client, &id).await?.run_code(code).timeout(timeout);
    run = run.set_some(language, RunCode::language).set_some(context, RunCode::context);
    for (name, value) in variables(&[], &env)? {
        run = run.env(name, value);
    }
    let ended = async {
        if format == OutputFormat::Plain {
            return show(run, Results::new(dir)).await;
        }
        let execution = run.await?;
        output::json(&execution)?;
        Ok(execution.exception.as_ref().map_or(0, exit_code))
    };
    tokio::select! {
        code = ended => Ok(ExitCode::from(code?)),
        // Dropping the request interrupts the code.
        code = interrupt.first() => Ok(ExitCode::from(code)),
    }
}

fn read_stdin() -> Result<String> {
    let mut code = String::new();
    std::io::stdin().read_to_string(&mut code).context("cannot read the code from standard input")?;
    Ok(code)
}

/// Shows the output and the results of the code. Returns its exit code.
async fn show(run: RunCode, mut results: Results) -> Result<u8> {
    let (mut events, mut code) = (run.stream().await?, 0);
    while let Some(event) = events.try_next().await? {
        match event {
            CodeOutput::Stdout(text) => output::text(&text)?,
            CodeOutput::Stderr(text) => std::io::stderr().write_all(text.as_bytes())?,
            CodeOutput::Result(result) => results.show(&result)?,
            CodeOutput::Exception(exception) => {
                code = exit_code(&exception);
                let has_traceback = !exception.traceback.is_empty();
                output::note(if has_traceback { &exception.traceback } else { &exception.value });
            }
            CodeOutput::Done(_) => {}
        }
    }
    Ok(code)
}

/// The exit code that the code chose: with `sys.exit` of Python, or as the status of its last Bash command.
fn exit_code(exception: &CodeException) -> u8 {
    match (exception.name.as_str(), exception.value.trim()) {
        ("SystemExit", "" | "None") => 0,
        ("SystemExit" | "ExitStatus", status) => status.parse().unwrap_or(EXIT_CODE_RAISED),
        _ => EXIT_CODE_RAISED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_code() {
        for (name, value, expected) in [
            ("SystemExit", "", 0),
            ("SystemExit", "0", 0),
            ("SystemExit", "3", 3),
            ("SystemExit", "wrong arguments", 1),
            ("ExitStatus", "127", 127),
            ("ValueError", "3", 1),
            ("KernelDied", "", 1),
        ] {
            let exception =
                CodeException { name: name.into(), value: value.into(), traceback: String::new() };
            assert_eq!(exit_code(&exception), expected, "{name} {value}");
        }
    }
}
