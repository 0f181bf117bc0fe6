//! Ctrl-C and SIGTERM. The first signal interrupts the operation, which cleans up; the second exits at once. If the
//! caller handles the second too, it has a few seconds for cleaning up, and a third signal exits at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// 128 and the number of SIGINT.
pub const EXIT_CODE_SIGINT: u8 = 130;
/// 128 and the number of SIGTERM.
const EXIT_CODE_SIGTERM: u8 = 143;

/// Limit for cleaning up after the second signal, because the service may not respond.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(3);

/// Reports signals.
#[derive(Clone)]
pub struct Interrupt {
    /// The exit codes of the received signals.
    received: watch::Receiver<Vec<u8>>,
    second_is_handled: Arc<AtomicBool>,
}

impl Interrupt {
    /// Starts listening, in a task that lives as long as the program.
    pub fn listen() -> std::io::Result<Self> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (sender, received) = watch::channel(Vec::new());
        let second_is_handled = Arc::<AtomicBool>::default();
        let handled = Arc::clone(&second_is_handled);
        tokio::spawn(async move {
            for time in 0.. {
                let code = tokio::select! {
                    _ = interrupt.recv() => EXIT_CODE_SIGINT,
                    _ = terminate.recv() => EXIT_CODE_SIGTERM,
                };
                if time > usize::from(handled.load(Ordering::Relaxed)) {
                    std::process::exit(code.into());
                }
                sender.send_modify(|received| received.push(code));
                if time > 0 {
                    tokio::spawn(async move {
                        tokio::time::sleep(CLEANUP_TIMEOUT).await;
                        std::process::exit(code.into());
                    });
                }
            }
        });
        Ok(Self { received, second_is_handled })
    }

    /// Declares that the caller handles the second signal, with [`second`](Self::second).
    pub fn is_handled(&self) {
        self.second_is_handled.store(true, Ordering::Relaxed);
    }

    /// Waits for the first signal and returns its exit code.
    pub async fn first(&self) -> u8 {
        self.signal(0).await
    }

    /// Waits for the second signal and returns its exit code.
    pub async fn second(&self) -> u8 {
        self.signal(1).await
    }

    async fn signal(&self, index: usize) -> u8 {
        let mut received = self.received.clone();
        let codes = received.wait_for(|received| received.len() > index).await;
        // The sender lives as long as the program.
        codes.ok().and_then(|codes| codes.get(index).copied()).unwrap_or(EXIT_CODE_SIGINT)
    }
}
