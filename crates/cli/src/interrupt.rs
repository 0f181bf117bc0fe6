//! Ctrl-C and SIGTERM. The first interrupts what is being done, in good order; the second leaves at once.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

/// 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;
/// 128 and the number of SIGTERM.
const TERMINATED: u8 = 143;

/// Tells of the first signal.
#[derive(Clone)]
pub struct Interrupt {
    first: Arc<First>,
}

struct First {
    notify: Notify,
    code: std::sync::atomic::AtomicU8,
}

impl Interrupt {
    /// Listens from now on, in a task that lives as long as the program.
    pub fn listen() -> std::io::Result<Self> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let first = Arc::new(First { notify: Notify::new(), code: 0.into() });
        let told = Arc::clone(&first);
        tokio::spawn(async move {
            for time in 0.. {
                let code = tokio::select! {
                    _ = interrupt.recv() => INTERRUPTED,
                    _ = terminate.recv() => TERMINATED,
                };
                if time > 0 {
                    std::process::exit(code.into());
                }
                told.code.store(code, std::sync::atomic::Ordering::Relaxed);
                // A permit is kept for who asks later.
                told.notify.notify_one();
            }
        });
        Ok(Self { first })
    }

    /// Waits for the first signal: the exit code that goes with it.
    pub async fn first(&self) -> u8 {
        self.first.notify.notified().await;
        // For whoever else waits.
        self.first.notify.notify_one();
        self.first.code.load(std::sync::atomic::Ordering::Relaxed)
    }
}
