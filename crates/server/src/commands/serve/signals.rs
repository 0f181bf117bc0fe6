//! Stop signals. The first SIGTERM or SIGINT starts an orderly shutdown; a second one ends the daemon immediately.

use std::io::{IsTerminal, stdin};

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that the daemon handles.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    /// Whether SIGHUP stops the daemon: only if it runs in a terminal. Otherwise SIGHUP is ignored, because changed certificate
    /// files are read without it.
    terminal: bool,
}

impl Signals {
    /// From here on signals no longer end the process.
    pub fn listen() -> Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            terminal: stdin().is_terminal(),
        })
    }

    /// Resolves with the name of a stop signal.
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
