//! `sbx run`: one command in a sandbox of its own, which is gone when this ends, also after Ctrl-C. What `-v` names is copied in
//! before, and with `:rw` copied out after a command that nobody interrupted.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use futures_util::future::try_join_all;
use sandboxd_client::{Client, Sandbox};

use super::follow::{Shown, follow, prepared};
use super::input::Input;
use super::made::{Made, Waiting, made, remove};
use super::tended::{TIMEOUT, tended};
use super::transfer::{Place, Source};
use super::words;
use crate::cli::{RunArguments, Volume};
use crate::context::{Failure, OURS};
use crate::interrupt::Interrupt;
use crate::progress::Progress;

/// Beyond the command's: should this program be killed, the sandbox ends by itself.
const GRACE: Duration = Duration::from_secs(60);
/// For what is copied in and out again: the largest disk, both ways, at 8 MB/s.
const COPIES: Duration = Duration::from_secs(4 * 60 * 60);
/// The service's bound on the life of a sandbox.
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
        let create = words::new(client, &arguments.image, &arguments.new)?;
        // One that idles has been left behind: it is to end, and not to be kept as a paused one.
        Ok(create.timeout(lifetime).idle_timeout(Duration::ZERO))
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let waiting = Waiting { client, image, wait, quiet: json, interrupt: &interrupt };
    let sandbox = match made(waiting, ask).await? {
        Made::Sandbox(sandbox) => sandbox,
        Made::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    let result = within(&sandbox, json, &arguments, input, &interrupt).await;
    remove(&sandbox).await;
    result
}

/// No more than a net for this program's sudden death, so it is wide: what is copied takes as long as it takes.
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
    let execute = sandbox.execute(words::line(&arguments.command)).timeout(TIMEOUT);
    let running = &arguments.running;
    let (execute, raw) = prepared(execute, running, input);
    let shown = if json { Shown::Json } else { Shown::AsItIs };
    // A person wants to interrupt the command in good order; a file or a program wants all that it prints. What is fed to it, and one
    // that takes long, has to be a command that goes on by itself.
    let detached = std::io::stdout().is_terminal() || raw.is_some() || running.is_long();
    let code = if detached && !running.buffered {
        tended(execute, raw, shown, interrupt).await?
    } else {
        follow(execute, running, shown, interrupt).await?
    };
    copied_out(sandbox, arguments, code, interrupt).await
}

/// One that fails does not keep the next from its turn. The command's own end counts more, where it was none in good order.
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
    let source = Source::find(Place::Here(volume.local.clone())).await?;
    let (name, size) = source.shown();
    let progress = Progress::new(&name, size, false);
    let copied =
        source.unnamed().copy(Place::Inside(sandbox.files(), volume.inside.clone()), &progress).await;
    progress.done();
    copied.map(drop)
}

async fn copy_out(sandbox: &Sandbox, volume: &Volume) -> Result<()> {
    let source = Source::find(Place::Inside(sandbox.files(), volume.inside.clone())).await?;
    let (name, size) = source.shown();
    let progress = Progress::new(&name, size, false);
    let copied = source.unnamed().copy(Place::Here(volume.local.clone()), &progress).await;
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
