//! `sbx shell`: an interactive terminal in a sandbox. When this program or its connection ends, the terminal keeps
//! running, and `--attach` attaches to it again.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use sandboxd_client::{Client, Keyboard, Terminal, TerminalEvent};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use super::command_line;
use super::follow::code;
use crate::cli::ShellArguments;
use crate::interrupt::EXIT_CODE_SIGINT;
use crate::output::note;
use crate::tty::{self, Raw};

/// Size of one read from the keyboard.
const READ_BYTES: usize = 4096;
/// Capacity of the input queue.
const QUEUE: usize = 16;
const CTRL_C: u8 = 3;

pub async fn shell(client: &Client, arguments: ShellArguments) -> Result<ExitCode> {
    ensure!(tty::is_there(), "this is not a terminal; use 'sbx exec' to run a command without one");
    let sandbox = client.sandbox(&arguments.id)?;
    let mut resized = signal(SignalKind::window_change())?;
    let terminal = match &arguments.attach {
        Some(execution) => sandbox.execution(execution)?.attach().await?,
        None => {
            let mut open = sandbox.terminal();
            if let Some((cols, rows)) = tty::size() {
                open = open.size(cols, rows);
            }
            if let Ok(kind) = std::env::var("TERM") {
                open = open.env("TERM", kind);
            }
            for word in &arguments.env {
                let (name, value) = command_line::env_variable(word)?;
                open = open.env(name, value);
            }
            if let Some(workdir) = &arguments.workdir {
                open = open.cwd(workdir);
            }
            if let Some(user) = &arguments.user {
                open = open.user(user);
            }
            if !arguments.command.is_empty() {
                open = open.command(command_line::bash_command(&arguments.command));
            }
            open.await?
        }
    };
    if let (Some((cols, rows)), true) = (tty::size(), arguments.attach.is_some()) {
        terminal.resize(cols, rows).await?;
    }
    let execution = terminal.execution().id().to_string();
    let raw = Raw::enter().context("cannot set up the terminal")?;
    let left = attach_terminal(terminal, &mut resized).await;
    drop(raw);
    match left? {
        SessionEnd::Ended(code) => Ok(ExitCode::from(code)),
        SessionEnd::Detached(code) => {
            let id = sandbox.id();
            note(&format!(
                "sbx: the terminal keeps running; attach to it with 'sbx shell --attach {execution} {id}'"
            ));
            Ok(ExitCode::from(code))
        }
    }
}

enum SessionEnd {
    /// The terminal has ended.
    Ended(u8),
    /// Detached; the terminal keeps running.
    Detached(u8),
}

/// Connects the local terminal until either side ends.
async fn attach_terminal(mut terminal: Terminal, resized: &mut Signal) -> Result<SessionEnd> {
    let (mut hangup, mut terminate) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let (away, is_away) = watch::channel(false);
    let mut left = forward_keys(terminal.keyboard(), is_away);
    let mut out = std::io::stdout();
    loop {
        let shown = tokio::select! {
            shown = terminal.next() => shown?,
            _ = resized.recv() => {
                if let Some((cols, rows)) = tty::size() {
                    terminal.resize(cols, rows).await?;
                }
                continue;
            }
            _ = hangup.recv() => return Ok(SessionEnd::Detached(129)),
            _ = terminate.recv() => return Ok(SessionEnd::Detached(143)),
            Some(()) = left.recv() => return Ok(SessionEnd::Detached(EXIT_CODE_SIGINT)),
        };
        match shown {
            Some(TerminalEvent::Bytes(bytes)) => {
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Some(TerminalEvent::Dropped) => {}
            Some(TerminalEvent::Disconnected) => {
                away.send_replace(true);
                note("\r\nsbx: connection lost, reconnecting; press Ctrl-C to exit\r");
            }
            Some(TerminalEvent::Reconnected) => {
                away.send_replace(false);
                note("sbx: reconnected\r");
            }
            Some(TerminalEvent::Ended(ended)) => {
                return Ok(SessionEnd::Ended(code(ended.exit_code, ended.signal.as_deref())));
            }
            None => anyhow::bail!("the terminal ended without a result"),
        }
    }
}

/// Forwards keyboard input. While disconnected, a bounded amount is queued, and Ctrl-C is reported to the caller.
fn forward_keys(keyboard: Keyboard, mut away: watch::Receiver<bool>) -> mpsc::Receiver<()> {
    let (keys, mut typed) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (leave, left) = mpsc::channel(1);
    let is_away = away.clone();
    // A thread, because a read from a terminal cannot be cancelled; it ends with the program.
    std::thread::spawn(move || {
        let mut bytes = [0; READ_BYTES];
        while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut bytes) {
            let typed = bytes[..count].to_vec();
            if *is_away.borrow() {
                if typed.contains(&CTRL_C) {
                    let _ = leave.blocking_send(());
                } else if let Err(TrySendError::Closed(_)) = keys.try_send(typed) {
                    return;
                }
                // Input beyond the queue is lost: waiting for the queue would miss Ctrl-C.
            } else if keys.blocking_send(typed).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(bytes) = typed.recv().await {
            // Input is held back until the connection is restored.
            if away.wait_for(|away| !away).await.is_err() {
                return;
            }
            if keyboard.write(bytes).await.is_err() {
                return;
            }
        }
    });
    left
}
