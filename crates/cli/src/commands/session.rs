//! A session on a terminal in a sandbox: connects the local terminal to it. Called by `shell`, and by `exec` and `run` with `--tty`. When
//! this program or its connection ends, the terminal keeps running, and `sbx shell --attach` attaches to it again.

use std::io::{Read, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::SetSome;
use sandboxd_client::{ExecutionView, Keyboard, OpenTerminal, Sandbox, Terminal, TerminalEvent};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};

use super::command_line;
use super::end;
use crate::interrupt::EXIT_CODE_SIGINT;
use crate::output::note;
use crate::tty::{self, Raw};

/// Size of one read from the keyboard.
const READ_BYTES: usize = 4096;
/// Capacity of the input queue.
const QUEUE: usize = 16;
const CTRL_C: u8 = 3;

/// A terminal to open.
pub struct TerminalOptions<'a> {
    pub env: Vec<(String, String)>,
    pub workdir: Option<&'a str>,
    pub user: Option<&'a str>,
    pub timeout: Option<Duration>,
    pub no_resume: bool,
    /// A shell if it is empty.
    pub command: &'a [String],
}

/// How a session ended.
pub enum SessionEnd {
    Ended(Box<ExecutionView>),
    /// Detached, with the exit code; the terminal keeps running.
    Detached(u8),
}

/// Fails if standard input is not a terminal. The output may be a pipe or a file.
pub fn check_terminal() -> Result<()> {
    ensure!(
        tty::is_input(),
        "standard input is not a terminal; use 'sbx exec' or 'sbx run' without --tty instead"
    );
    Ok(())
}

/// Opens a terminal with the size of the local one.
pub async fn open(sandbox: &Sandbox, options: TerminalOptions<'_>) -> Result<Terminal> {
    let mut open = sandbox.terminal();
    if let Some((cols, rows)) = tty::size() {
        open = open.size(cols, rows);
    }
    if let Ok(kind) = std::env::var("TERM") {
        open = open.env("TERM", kind);
    }
    for (name, value) in options.env {
        open = open.env(name, value);
    }
    open = open
        .set_some(options.workdir, OpenTerminal::cwd)
        .set_some(options.user, OpenTerminal::user)
        .set_some(options.timeout, OpenTerminal::timeout);
    if options.no_resume {
        open = open.without_resume();
    }
    if !options.command.is_empty() {
        open = open.command(command_line::bash_command(options.command));
    }
    Ok(open.await?)
}

/// Runs a session in a sandbox that continues after it. Returns the exit code.
pub async fn run(sandbox: &Sandbox, terminal: Terminal) -> Result<ExitCode> {
    let execution = terminal.execution().id().to_string();
    match join(terminal).await? {
        SessionEnd::Ended(view) => Ok(end::report((&*view).into())),
        SessionEnd::Detached(code) => {
            let id = sandbox.id();
            note(&format!(
                "sbx: the terminal keeps running; attach to it with 'sbx shell --attach {execution} {id}'"
            ));
            Ok(ExitCode::from(code))
        }
    }
}

/// Connects the local terminal, in raw mode, until either side ends.
pub async fn join(terminal: Terminal) -> Result<SessionEnd> {
    let mut resized = signal(SignalKind::window_change())?;
    let _raw = Raw::enter().context("cannot set up the terminal")?;
    connect(terminal, &mut resized).await
}

async fn connect(mut terminal: Terminal, resized: &mut Signal) -> Result<SessionEnd> {
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
            Some(TerminalEvent::Warning(text)) => note(&format!("\r\nsbx: {text}\r")),
            Some(TerminalEvent::Ended(view)) => return Ok(SessionEnd::Ended(view)),
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
