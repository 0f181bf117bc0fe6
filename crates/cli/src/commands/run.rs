//! `sbx run`: runs a command in a new sandbox and removes the sandbox, also after Ctrl-C. Volumes are copied in before, and with `:rw`
//! copied out after a command that was not interrupted.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use sandboxd_client::{Client, Sandbox};

use super::command_line;
use super::creation::{Creation, CreationOptions, create_sandbox, remove};
use super::detached::{TIMEOUT, run_detached};
use super::follow::{OutputFormat, follow, with_input};
use super::input::Input;
use super::transfer::{Location, Source};
use crate::cli::{RunArguments, Volume};
use crate::context::{Failure, OURS};
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Lifetime of the sandbox beyond the time limit of the command, so that it ends even if sbx is killed.
const GRACE: Duration = Duration::from_secs(60);
/// Time for copying: the largest disk, both ways, at 8 MB/s.
const COPIES: Duration = Duration::from_secs(4 * 60 * 60);
/// The service's limit for the lifetime of a sandbox.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

pub async fn run(client: &Client, json: bool, arguments: RunArguments) -> Result<ExitCode> {
    let interrupt = Interrupt::listen()?;
    let input = tokio::select! {
        input = Input::read(&arguments.running) => input?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    arguments.running.check(input.is_raw())?;
    let lifetime = lifetime(&arguments);
    let ask = || {
        let create = command_line::create_request(client, &arguments.image, &arguments.new)?;
        // An abandoned sandbox must end instead of being kept paused.
        Ok(create.timeout(lifetime).idle_timeout(Duration::ZERO))
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let options = CreationOptions { client, image, wait, quiet: json, interrupt: &interrupt };
    let sandbox = match create_sandbox(options, ask).await? {
        Creation::Sandbox(sandbox) => sandbox,
        Creation::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    let result = within(&sandbox, json, &arguments, input, &interrupt).await;
    remove(&sandbox).await;
    result
}

/// The lifetime of the sandbox. It only matters if sbx is killed, so it is generous.
fn lifetime(arguments: &RunArguments) -> Duration {
    let command = arguments.running.timeout.unwrap_or(TIMEOUT).saturating_add(GRACE);
    let copies = if arguments.volume.is_empty() { Duration::ZERO } else { COPIES };
    command.saturating_add(copies).min(LONGEST)
}

async fn within(
    sandbox: &Sandbox,
    json: bool,
    arguments: &RunArguments,
    input: Input,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    let copies = try_join_all(arguments.volume.iter().map(|volume| copy_in(sandbox, volume)));
    tokio::select! {
        copied = copies => drop(copied?),
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    }
    let execute = sandbox.execute(command_line::bash_command(&arguments.command)).timeout(TIMEOUT);
    let running = &arguments.running;
    let (execute, raw) = with_input(execute, running, input);
    let format = if json { OutputFormat::Json } else { OutputFormat::Plain };
    // On a terminal Ctrl-C should reach the command; a file or pipe should receive all output. Streamed input and long time limits require
    // a detached execution.
    let detached = std::io::stdout().is_terminal() || raw.is_some() || running.is_long();
    let code = if detached && !running.buffered {
        run_detached(execute, raw, format, interrupt).await?
    } else {
        follow(execute, running, format, interrupt).await?
    };
    copied_out(sandbox, arguments, code, interrupt).await
}

/// Copies volumes out. A failure does not stop the next; the exit code of a failed command takes precedence.
async fn copied_out(
    sandbox: &Sandbox,
    arguments: &RunArguments,
    mut code: ExitCode,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    for volume in arguments.volume.iter().filter(|volume| volume.back) {
        tokio::select! {
            biased;
            _ = interrupt.first() => return Ok(code),
            copied = copy_out(sandbox, volume) => if let Err(error) = copied {
                Failure(&error).print();
                if code == ExitCode::SUCCESS {
                    code = ExitCode::from(OURS);
                }
            }
        }
    }
    Ok(code)
}

async fn copy_in(sandbox: &Sandbox, volume: &Volume) -> Result<()> {
    let source = Source::find(Location::Here(volume.local.clone())).await?;
    let (name, size) = source.shown();
    let progress = Progress::new(&name, size, false);
    let copied =
        source.unnamed().copy(Location::Inside(sandbox.files(), volume.inside.clone()), &progress).await;
    progress.done();
    copied.map(drop)
}

async fn copy_out(sandbox: &Sandbox, volume: &Volume) -> Result<()> {
    let source = Source::find(Location::Inside(sandbox.files(), volume.inside.clone())).await?;
    let (name, size) = source.shown();
    let progress = Progress::new(&name, size, false);
    let copied = source.unnamed().copy(Location::Here(volume.local.clone()), &progress).await;
    progress.done();
    copied.map(drop)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Verb};

    fn lifetime_of(words: &[&str]) -> u64 {
        let words = [&["sbx", "run", "img"], words, &["--", "true"]].concat();
        let Verb::Run(arguments) = Cli::try_parse_from(words).unwrap().verb else { panic!() };
        lifetime(&arguments).as_secs()
    }

    #[test]
    fn copies_have_a_time_of_their_own() {
        assert_eq!(lifetime_of(&[]), 120);
        assert_eq!(lifetime_of(&["--timeout", "5m"]), 360);
        assert_eq!(lifetime_of(&["-v", ".:/a", "-v", ".:/b:rw"]), 120 + COPIES.as_secs());
        assert_eq!(lifetime_of(&["--timeout", "24h", "-v", ".:/a"]), LONGEST.as_secs());
        assert_eq!(lifetime_of(&["--timeout", "24h"]), LONGEST.as_secs());
    }
}
