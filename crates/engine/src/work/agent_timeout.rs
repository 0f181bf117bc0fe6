//! Timeouts for answers of an agent. The clock stands still while the sandbox is paused, because its agent is frozen: it answers
//! after the resume.

use std::pin::pin;
use std::time::Duration;

use api::SandboxState;
use tokio::sync::watch;

use crate::link::LinkError;
use crate::record::status::Status;

/// How long the agent may take to connect to a port inside.
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the agent may take to start a command, and to report the end of one that it killed.
pub const AGENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the agent may take.
pub struct AgentTimeout {
    time: Duration,
    status: watch::Receiver<Status>,
}

impl AgentTimeout {
    pub fn new(time: Duration, status: watch::Receiver<Status>) -> Self {
        Self { time, status }
    }

    /// The same sandbox with another duration.
    pub fn with_duration(self, time: Duration) -> Self {
        Self { time, ..self }
    }

    /// Waits for an answer of the agent.
    pub async fn answer<T>(
        &mut self,
        answer: impl Future<Output = Result<T, LinkError>>,
    ) -> Result<T, LinkError> {
        self.wait(answer).await.map_err(LinkError::Silent)?
    }

    /// Waits for `work`. The error is the duration that elapsed without it.
    pub async fn wait<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Duration> {
        let mut work = pin!(work);
        loop {
            let is_paused = self.status.borrow_and_update().state() == SandboxState::Paused;
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                changed = self.status.changed() => if changed.is_err() {
                    // The actor has ended, so no pause or resume will follow.
                    return tokio::time::timeout(self.time, work).await.map_err(|_| self.time);
                },
                () = tokio::time::sleep(self.time), if !is_paused => return Err(self.time),
            }
        }
    }
}
