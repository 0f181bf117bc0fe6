//! `sbx run`: runs a command in a new sandbox and removes the sandbox, also after Ctrl-C and after a terminal session. Volumes are copied
//! in before, and with `:rw` copied out after a command that was not interrupted.

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use base::SetSome;
use futures_util::future::try_join_all;
use sandboxd_client::{Client, Execute, Sandbox};

use super::background;
use super::command_line;
use super::creation::{Creation, CreationOptions, create_sandbox, remove};
use super::detached::{Followed, run_detached};
use super::end;
use super::expose::publish;
use super::follow::{follow, with_input};
use super::input::Input;
use super::session::{self, SessionEnd, TerminalOptions};
use super::variables::variables;
use super::volume::{CopiedVolume, check_volumes};
use crate::cli::{BUFFERED_MAX, DETACHED_MAX, RunArguments};
use crate::failure::{PrintedError, SBX_FAILURE};
use crate::interrupt::Interrupt;
use crate::output::OutputFormat;

/// Lifetime of the sandbox beyond the time limit of the command, so that it ends even if sbx is killed.
const GRACE: Duration = Duration::from_secs(60);
/// Time for copying volumes.
const COPY_TIME: Duration = Duration::from_secs(4 * 60 * 60);
/// The service's limit for the lifetime of a sandbox.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The timeout of a sandbox whose command has no time limit. It is renewed while sbx lives, so a killed sbx leaves nothing for long.
const RENEWED_LIFETIME: Duration = Duration::from_secs(5 * 60);
/// How often the timeout is renewed. A shorter command needs no request for it, and four renewals may fail.
const RENEWAL: Duration = Duration::from_secs(60);

/// Runs the command and returns its exit code, after the sandbox was removed.
pub async fn run(client: &Client, format: OutputFormat, arguments: RunArguments) -> Result<ExitCode> {
    check_volumes(&arguments.volume)?;
    if arguments.detach {
        return background::start(client, format, &arguments).await;
    }
    if arguments.tty {
        session::check_terminal()?;
    }
    let env = variables(&arguments.new.env_file, &arguments.new.env)?;
    let interrupt = Interrupt::listen()?;
    let input = tokio::select! {
        input = read_input(&arguments) => input?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    arguments.running.check()?;
    let lifetime = lifetime(&arguments);
    let request = |client: &Client, image: &str| {
        let create = command_line::create_request(client, image, &arguments.new, &env);
        // Without idle timeout: if sbx is killed, the sandbox terminates at its timeout instead of staying paused.
        create.timeout(lifetime).idle_timeout(Duration::ZERO)
    };
    let (image, wait) = (arguments.image.as_str(), arguments.new.wait);
    let options = CreationOptions { client, image, wait, format, interrupt: &interrupt };
    let sandbox = match create_sandbox(options, request).await? {
        // With the client that waits for limits.
        Creation::Sandbox(sandbox) => client.sandbox(sandbox.id().as_str())?,
        Creation::Interrupted(code) => return Ok(ExitCode::from(code)),
    };
    // In a task of its own, because printing to a pipe that nobody reads blocks this one.
    let renewal = is_renewed(&arguments).then(|| tokio::spawn(renew_timeout(sandbox.clone())));
    let result = run_in(&sandbox, format, &arguments, input, &interrupt).await;
    renewal.inspect(tokio::task::JoinHandle::abort);
    remove(&sandbox).await;
    result
}

/// The input to send to the command. A session on a terminal reads its input itself.
async fn read_input(arguments: &RunArguments) -> Result<Input> {
    if arguments.tty { Ok(Input::None) } else { Input::read(&arguments.running).await }
}

/// Whether sbx keeps the sandbox by renewing its timeout. A terminal without a time limit has the longest timeout from the beginning, because
/// it survives longer losses of the connection.
fn is_renewed(arguments: &RunArguments) -> bool {
    arguments.running.timeout.is_none() && !arguments.tty
}

/// Renews the timeout of the sandbox until the task is aborted.
async fn renew_timeout(sandbox: Sandbox) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        // The next renewal is in time after a failure. If the sandbox is gone, the command says so.
        let _ = sandbox.set_timeout(RENEWED_LIFETIME).await;
    }
}

/// The lifetime of the sandbox. It matters only if sbx is killed.
fn lifetime(arguments: &RunArguments) -> Duration {
    let Some(command) = arguments.running.timeout else {
        return if is_renewed(arguments) { RENEWED_LIFETIME } else { MAX_LIFETIME };
    };
    let command = command.saturating_add(GRACE);
    let copies = if arguments.volume.is_empty() { Duration::ZERO } else { COPY_TIME };
    command.saturating_add(copies).min(MAX_LIFETIME)
}

async fn run_in(
    sandbox: &Sandbox,
    format: OutputFormat,
    arguments: &RunArguments,
    input: Input,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    let user = arguments.user.as_deref();
    let copies = arguments.volume.iter().map(|volume| CopiedVolume::copy_in(sandbox, volume, user));
    let copies = try_join_all(copies);
    let volumes = tokio::select! {
        copied = copies => copied?,
        code = interrupt.first() => return Ok(ExitCode::from(code)),
    };
    publish(sandbox, &arguments.new).await?;
    if arguments.tty {
        let code = run_session(sandbox, arguments).await?;
        return copy_volumes_out(sandbox, &volumes, code, interrupt).await;
    }
    let running = &arguments.running;
    // A detached execution can send Ctrl-C to the command, which a user on a terminal expects; one request loses no output, which matters
    // for a file or pipe, and is faster: a detached execution has a durable record and a second request. Streamed input and long time limits
    // require a detached execution.
    let is_detached = !running.buffered
        && (std::io::stdout().is_terminal() || matches!(input, Input::Streamed) || running.is_long());
    let execute = sandbox
        .execute(command_line::bash_command(&arguments.command))
        .set_some(arguments.user.as_ref(), Execute::user)
        .timeout(if is_detached { DETACHED_MAX } else { BUFFERED_MAX });
    let (execute, streamed) = with_input(execute, running, input);
    let code = if is_detached {
        match run_detached(execute, streamed, format, interrupt).await? {
            Followed::Ended(code) => code,
            // The sandbox is removed, as after any failure.
            Followed::StillPaused(still_paused, _) => return Err(still_paused.into()),
        }
    } else {
        follow(sandbox, execute, running, format, interrupt).await?
    };
    copy_volumes_out(sandbox, &volumes, code, interrupt).await
}

/// Runs the command, or a shell, on a terminal.
async fn run_session(sandbox: &Sandbox, arguments: &RunArguments) -> Result<ExitCode> {
    let options = TerminalOptions {
        env: Vec::new(),
        workdir: None,
        user: arguments.user.as_deref(),
        timeout: arguments.running.timeout,
        no_resume: false,
        command: &arguments.command,
    };
    match session::join(session::open(sandbox, options).await?).await? {
        SessionEnd::Ended(view) => Ok(end::report((&*view).into())),
        // The sandbox is removed, and the terminal with it.
        SessionEnd::Detached(code) => Ok(ExitCode::from(code)),
    }
}

/// Copies volumes out. A failure does not stop the next; the exit code of a failed command takes precedence.
async fn copy_volumes_out(
    sandbox: &Sandbox,
    volumes: &[CopiedVolume<'_>],
    mut code: ExitCode,
    interrupt: &Interrupt,
) -> Result<ExitCode> {
    for volume in volumes {
        tokio::select! {
            biased;
            _ = interrupt.first() => return Ok(code),
            copied = volume.copy_out(sandbox) => if let Err(error) = copied {
                PrintedError(&error).print();
                if code == ExitCode::SUCCESS {
                    code = ExitCode::from(SBX_FAILURE);
                }
            }
        }
    }
    Ok(code)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, SbxCommand};

    fn lifetime_of(words: &[&str]) -> u64 {
        let words = [&["sbx", "run", "img"], words, &["--", "true"]].concat();
        let SbxCommand::Run(arguments) = Cli::try_parse_from(words).unwrap().command else { panic!() };
        lifetime(&arguments).as_secs()
    }

    #[test]
    fn a_session_without_a_time_limit_may_last_as_long_as_a_sandbox() {
        assert_eq!(lifetime_of(&["-t"]), MAX_LIFETIME.as_secs());
        assert_eq!(lifetime_of(&["-it", "--timeout", "5m"]), 360);
    }

    #[test]
    fn without_a_time_limit_the_timeout_is_short_and_renewed() {
        assert_eq!((lifetime_of(&[]), lifetime_of(&["-v", ".:/a"])), (300, 300));
        assert_eq!(lifetime_of(&["--timeout", "0"]), MAX_LIFETIME.as_secs());
    }

    #[test]
    fn volumes_extend_the_lifetime() {
        assert_eq!(lifetime_of(&["--timeout", "5m"]), 360);
        let volumes = ["--timeout", "5m", "-v", ".:/a", "-v", ".:/b:rw"];
        assert_eq!(lifetime_of(&volumes), 360 + COPY_TIME.as_secs());
        assert_eq!(lifetime_of(&["--timeout", "24h", "-v", ".:/a"]), MAX_LIFETIME.as_secs());
        assert_eq!(lifetime_of(&["--timeout", "24h"]), MAX_LIFETIME.as_secs());
    }
}
