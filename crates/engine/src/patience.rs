//! How long an agent is waited for. While its sandbox is paused it is frozen with the rest, and not late: what was asked of it just
//! before goes on with the sandbox.

use std::pin::pin;
use std::time::Duration;

use api::SandboxState;
use tokio::sync::watch;

use crate::status::Status;

/// For how long it may be silent.
pub struct Patience {
    time: Duration,
    status: watch::Receiver<Status>,
}

impl Patience {
    pub fn new(time: Duration, status: watch::Receiver<Status>) -> Self {
        Self { time, status }
    }

    /// The same for another time.
    pub fn of(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Waits for something that the agent does; an error is how long that was too long.
    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Duration> {
        let mut work = pin!(work);
        loop {
            let is_paused = self.status.borrow_and_update().state() == SandboxState::Paused;
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                changed = self.status.changed() => if changed.is_err() {
                    // Nobody is there to resume it: the sandbox is over, or the engine.
                    return tokio::time::timeout(self.time, work).await.map_err(|_| self.time);
                },
                () = tokio::time::sleep(self.time), if !is_paused => return Err(self.time),
            }
        }
    }
}
