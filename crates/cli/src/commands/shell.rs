//! `sbx shell`: a terminal in a sandbox, as if we sat at it. It goes on when this program or its connection ends, and can be
//! come back to.

use std::io::{Read, Write};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use sandboxd_client::{Client, Keyboard, Shown, Terminal};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use super::follow::code;
use super::words;
use crate::cli::ShellArguments;
use crate::interrupt::INTERRUPTED;
use crate::output::note;
use crate::tty::{self, Raw};

/// Read from the keyboard at once; a clipboard comes in several.
const KEYS: usize = 4096;
/// Pieces of input that wait.
const QUEUE: usize = 16;
const CTRL_C: u8 = 3;

pub async fn shell(client: &Client, arguments: ShellArguments) -> Result<ExitCode> {
    ensure!(tty::is_there(), "this is no terminal; 'sbx exec' runs a command without one");
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
                let (name, value) = words::variable(word)?;
                open = open.env(name, value);
            }
            if let Some(workdir) = &arguments.workdir {
                open = open.cwd(workdir);
            }
            if !arguments.command.is_empty() {
                open = open.command(words::line(&arguments.command));
            }
            open.await?
        }
    };
    if let (Some((cols, rows)), true) = (tty::size(), arguments.attach.is_some()) {
        terminal.resize(cols, rows).await?;
    }
    let execution = terminal.execution().id().to_string();
    let raw = Raw::enter().context("the terminal cannot be set up")?;
    let left = at(terminal, &mut resized).await;
    drop(raw);
    match left? {
        Left::Ended(code) => Ok(ExitCode::from(code)),
        Left::Gone(code) => {
            let id = sandbox.id();
            note(&format!(
                "sbx: the terminal goes on; 'sbx shell --attach {execution} {id}' comes back to it"
            ));
            Ok(ExitCode::from(code))
        }
    }
}

enum Left {
    /// The terminal has ended.
    Ended(u8),
    /// We leave, and it stays.
    Gone(u8),
}

/// Sits at it.
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
                note("\r\nsbx: the connection was lost and is being made again; Ctrl-C leaves\r");
            }
            Some(Shown::Back) => {
                away.send_replace(false);
                note("sbx: it is back\r");
            }
            Some(Shown::Ended(ended)) => {
                return Ok(Left::Ended(code(ended.exit_code, ended.signal.as_deref())));
            }
            None => anyhow::bail!("the terminal ended without saying how"),
        }
    }
}

/// Hands on what is typed; while the terminal is away, some of it is kept. Tells of Ctrl-C then, when it is meant for us.
fn typing(keyboard: Keyboard, mut away: watch::Receiver<bool>) -> mpsc::Receiver<()> {
    let (keys, mut typed) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (leave, left) = mpsc::channel(1);
    let is_away = away.clone();
    // A thread that reads a terminal cannot be called off; it ends with the program.
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
                // What is more than is kept is lost: to wait would be to miss Ctrl-C.
            } else if keys.blocking_send(typed).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some(piece) = typed.recv().await {
            // What is typed meanwhile goes when the terminal is back, and stands in nobody's way until then.
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
