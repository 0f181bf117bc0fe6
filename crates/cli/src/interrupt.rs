//! Ctrl-C and SIGTERM. The first interrupts what is being done, in good order; the second leaves at once. Where somebody sees to the
//! second as well there is a little time for putting things in order, which the third cuts off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// 128 and the number of SIGINT.
pub const INTERRUPTED: u8 = 130;
/// 128 and the number of SIGTERM.
const TERMINATED: u8 = 143;

/// For what has to be put in order after the second: the service may be the one that does not answer.
const LAST_MOMENT: Duration = Duration::from_secs(3);

/// Tells of the signals.
#[derive(Clone)]
pub struct Interrupt {
    /// The exit codes that go with those that came.
    came: watch::Receiver<Vec<u8>>,
    second_is_handled: Arc<AtomicBool>,
}

impl Interrupt {
    /// Listens from now on, in a task that lives as long as the program.
    pub fn listen() -> std::io::Result<Self> {
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let (tell, came) = watch::channel(Vec::new());
        let second_is_handled = Arc::<AtomicBool>::default();
        let handled = Arc::clone(&second_is_handled);
        tokio::spawn(async move {
            for time in 0.. {
                let code = tokio::select! {
                    _ = interrupt.recv() => INTERRUPTED,
                    _ = terminate.recv() => TERMINATED,
                };
                if time > usize::from(handled.load(Ordering::Relaxed)) {
                    std::process::exit(code.into());
                }
                tell.send_modify(|came| came.push(code));
                if time > 0 {
                    tokio::spawn(async move {
                        tokio::time::sleep(LAST_MOMENT).await;
                        std::process::exit(code.into());
                    });
                }
            }
        });
        Ok(Self { came, second_is_handled })
    }

    /// From now on somebody waits for [`second`](Self::second).
    pub fn is_handled(&self) {
        self.second_is_handled.store(true, Ordering::Relaxed);
    }

    /// Waits for the first signal: the exit code that goes with it.
    pub async fn first(&self) -> u8 {
        self.signal(0).await
    }

    /// Waits for the second one.
    pub async fn second(&self) -> u8 {
        self.signal(1).await
    }

    async fn signal(&self, index: usize) -> u8 {
        let mut came = self.came.clone();
        let codes = came.wait_for(|came| came.len() > index).await;
        // The sender lives as long as the program.
        codes.ok().and_then(|codes| codes.get(index).copied()).unwrap_or(INTERRUPTED)
    }
}
