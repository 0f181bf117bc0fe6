//! The time limit of a command, enforced by a task of its own, so that it holds whether or not the output is read.
//!
//! The clock stands still while the sandbox is paused. The task ends with its [`Deadline`], or when it has killed the command.

use std::time::Duration;

use api::SandboxState;
use base::millis;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::link::{Command, Killer};
use crate::record::clock::Clock;
use crate::record::status::Status;
use crate::work::agent_timeout::AGENT_TIMEOUT;

pub struct Deadline {
    /// When the command was killed.
    over: watch::Receiver<Option<Instant>>,
    status: watch::Receiver<Status>,
    task: AbortHandle,
}

/// Ends a time limit when it is dropped.
pub struct LimitGuard(AbortHandle);

impl Deadline {
    /// Kills the command after `left` of running time.
    pub fn start(command: &Command, status: watch::Receiver<Status>, clock: Clock, left: Duration) -> Self {
        let now_running = status.borrow().record.lifecycle.running_ms(clock.now());
        Self::at(command.killer(), status, clock, now_running.saturating_add(millis(left)))
    }

    /// Kills the command when its sandbox has run for `ends_at_running_ms`.
    pub fn at(
        killer: Killer,
        status: watch::Receiver<Status>,
        clock: Clock,
        ends_at_running_ms: u64,
    ) -> Self {
        let (done, over) = watch::channel(None);
        let task = tokio::spawn(enforce(Budget { clock, ends_at_running_ms }, status.clone(), killer, done));
        Self { over, status, task: task.abort_handle() }
    }

    /// To be dropped when the command ends, which may be read much later: the limit that passes in between is not the reason.
    pub fn guard(&self) -> LimitGuard {
        LimitGuard(self.task.clone())
    }

    /// When the command was killed; `None` until then.
    pub fn over(&self) -> watch::Receiver<Option<Instant>> {
        self.over.clone()
    }

    pub fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Resolves when the agent has not reported the end of a killed command in time.
    pub async fn agent_is_late(&mut self) {
        let killed_at = self.over.wait_for(Option::is_some).await.ok().and_then(|killed_at| *killed_at);
        // The task ended without a kill, so the sandbox has ended; the end of the link ends the command.
        let Some(killed_at) = killed_at else { return std::future::pending().await };
        let mut until = killed_at + AGENT_TIMEOUT;
        loop {
            tokio::time::sleep_until(until).await;
            if self.status.borrow_and_update().state() != SandboxState::Paused {
                return;
            }
            // A frozen agent is not late.
            if self.status.changed().await.is_err() {
                return std::future::pending().await;
            }
            until = Instant::now() + AGENT_TIMEOUT;
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Drop for LimitGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Budget {
    clock: Clock,
    /// The running time of the sandbox at which the command is killed.
    ends_at_running_ms: u64,
}

impl Budget {
    /// The time left; `None` while the sandbox is paused.
    fn left(&self, status: &Status) -> Option<Duration> {
        let lifecycle = &status.record.lifecycle;
        lifecycle.running_since()?;
        let now = lifecycle.running_ms(self.clock.now());
        Some(Duration::from_millis(self.ends_at_running_ms.saturating_sub(now)))
    }
}

async fn enforce(
    budget: Budget,
    mut status: watch::Receiver<Status>,
    killer: Killer,
    done: watch::Sender<Option<Instant>>,
) {
    loop {
        let left = budget.left(&status.borrow_and_update());
        if left == Some(Duration::ZERO) {
            // First, because the agent may report the end of the command before this task continues.
            done.send_replace(Some(Instant::now()));
            killer.kill();
            return;
        }
        tokio::select! {
            () = sleep(left) => {}
            // A pause stops the clock and a resume starts it.
            changed = status.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// Sleeps, without end while the command's clock stands still.
async fn sleep(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
