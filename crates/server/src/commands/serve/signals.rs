//! When to stop. The first SIGTERM or SIGINT asks for an orderly end, a second one for an end at once.

use std::io::{IsTerminal, stdin};

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that matter to a daemon.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// A terminal that closes takes the daemon that was started in it along. Elsewhere a hang-up means nothing: what can
    /// change while the daemon runs is read again when it changes.
    terminal: bool,
}

impl Signals {
    /// From now on signals wait here instead of ending the process.
    pub fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            terminal: stdin().is_terminal(),
        })
    }

    /// Resolves with the name of a signal that asks to stop.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                _ = self.hang_up.recv() => {
                    if self.terminal {
                        return "SIGHUP";
                    }
                    tracing::info!("SIGHUP changes nothing; certificate files are read again when they change");
                }
            }
        }
    }
}
