//! `sbx shell`: an interactive terminal in a sandbox. It keeps running when this program or its connection ends, and can be attached to
//! again.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use sandboxd_client::{Client, Keyboard, Shown, Terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use super::command_line;
use super::follow::code;
use crate::cli::ShellArguments;
use crate::interrupt::INTERRUPTED;
use crate::output::note;
use crate::tty::{self, Raw};

/// Size of one read from the keyboard.
const KEYS: usize = 4096;
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
    let left = at(terminal, &mut resized).await;
    drop(raw);
    match left? {
        Left::Ended(code) => Ok(ExitCode::from(code)),
        Left::Gone(code) => {
            let id = sandbox.id();
            note(&format!(
                "sbx: the terminal keeps running; attach to it with 'sbx shell --attach {execution} {id}'"
            ));
            Ok(ExitCode::from(code))
        }
    }
}

enum Left {
    /// The terminal has ended.
    Ended(u8),
    /// Detached; the terminal keeps running.
    Gone(u8),
}

/// Connects the local terminal until either side ends.
async fn at(mut terminal: Terminal, resized: &mut Signal) -> Result<Left> {
    let (mut hangup, mut terminate) = (signal(SignalKind::hangup())?, signal(SignalKind::terminate())?);
    let (away, is_away) = watch::channel(false);
    let mut left = typing(terminal.keyboard(), is_away);
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
            _ = hangup.recv() => return Ok(Left::Gone(129)),
            _ = terminate.recv() => return Ok(Left::Gone(143)),
            Some(()) = left.recv() => return Ok(Left::Gone(INTERRUPTED)),
        };
        match shown {
            Some(Shown::Bytes(bytes)) => {
                out.write_all(&bytes)?;
                out.flush()?;
            }
            Some(Shown::Dropped) => {}
            Some(Shown::Away) => {
                away.send_replace(true);
                note("\r\nsbx: connection lost, reconnecting; press Ctrl-C to exit\r");
            }
            Some(Shown::Back) => {
                away.send_replace(false);
                note("sbx: reconnected\r");
            }
            Some(Shown::Ended(ended)) => {
                return Ok(Left::Ended(code(ended.exit_code, ended.signal.as_deref())));
            }
            None => anyhow::bail!("the terminal ended without a result"),
        }
    }
}

/// Forwards input. While disconnected a bounded amount is kept, and Ctrl-C is reported to the caller.
fn typing(keyboard: Keyboard, mut away: watch::Receiver<bool>) -> mpsc::Receiver<()> {
    let (keys, mut typed) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (leave, left) = mpsc::channel(1);
    let is_away = away.clone();
    // A thread, because a read from a terminal cannot be cancelled; it ends with the program.
    std::thread::spawn(move || {
        let mut piece = [0; KEYS];
        while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut piece) {
            let typed = piece[..count].to_vec();
            if *is_away.borrow() {
                if typed.contains(&CTRL_C) {
                    let _ = leave.blocking_send(());
                } else if let Err(TrySendError::Closed(_)) = keys.try_send(typed) {
                    return;
                }
                // Input beyond the queue is lost, because waiting would miss Ctrl-C.
            } else if keys.blocking_send(typed).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(piece) = typed.recv().await {
            // Input is held back until the connection is restored.
            if away.wait_for(|away| !away).await.is_err() {
                return;
            }
            if keyboard.write(piece).await.is_err() {
                return;
            }
        }
    });
    left
}
