//! A command's time, kept by a task of its own, so that it is over when it is over, whether anybody reads the output or not.
//!
//! The time stands still while the sandbox is paused. The task ends with its [`Deadline`], or when it has done its work.

use std::time::Duration;

use api::SandboxState;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::clock::{Clock, millis};
use crate::link::{Command, Killer};
use crate::status::Status;

/// How long the agent may take to start a command, and to report the end of one that it killed.
pub const AGENT_PATIENCE: Duration = Duration::from_secs(10);

pub struct Deadline {
    /// When the command was told to die.
    over: watch::Receiver<Option<Instant>>,
    status: watch::Receiver<Status>,
    task: AbortHandle,
}

impl Deadline {
    /// From now on the command has `left`.
    pub fn start(command: &Command, status: watch::Receiver<Status>, clock: Clock, left: Duration) -> Self {
        let now_running = status.borrow().record.accounting.running_ms(clock.now());
        Self::at(command.killer(), status, clock, now_running.saturating_add(millis(left)))
    }

    /// It has until its sandbox has run for so long.
    pub fn at(
        killer: Killer,
        status: watch::Receiver<Status>,
        clock: Clock,
        ends_at_running_ms: u64,
    ) -> Self {
        let (done, over) = watch::channel(None);
        let task = tokio::spawn(keep(Budget { clock, ends_at_running_ms }, status.clone(), killer, done));
        Self { over, status, task: task.abort_handle() }
    }

    pub fn is_over(&self) -> bool {
        self.over.borrow().is_some()
    }

    /// Resolves when the end of a killed command should long have come.
    pub async fn agent_is_late(&mut self) {
        let told = self.over.wait_for(Option::is_some).await.ok().and_then(|told| *told);
        // Where the task gave up the sandbox is over, and the command's end comes with the link's.
        let Some(told) = told else { return std::future::pending().await };
        let mut until = told + AGENT_PATIENCE;
        loop {
            tokio::time::sleep_until(until).await;
            if self.status.borrow_and_update().state() != SandboxState::Paused {
                return;
            }
            // A frozen agent is not late.
            if self.status.changed().await.is_err() {
                return std::future::pending().await;
            }
            until = Instant::now() + AGENT_PATIENCE;
        }
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Budget {
    clock: Clock,
    /// Running time of the sandbox at which it is used up.
    ends_at_running_ms: u64,
}

impl Budget {
    /// How much is left; `None` while the sandbox is paused, when it does not get less.
    fn left(&self, status: &Status) -> Option<Duration> {
        let accounting = &status.record.accounting;
        accounting.running_since()?;
        let now = accounting.running_ms(self.clock.now());
        Some(Duration::from_millis(self.ends_at_running_ms.saturating_sub(now)))
    }
}

async fn keep(
    budget: Budget,
    mut status: watch::Receiver<Status>,
    killer: Killer,
    done: watch::Sender<Option<Instant>>,
) {
    loop {
        let left = budget.left(&status.borrow_and_update());
        if left == Some(Duration::ZERO) {
            killer.kill();
            done.send_replace(Some(Instant::now()));
            return;
        }
        tokio::select! {
            () = sleep(left) => {}
            // Pausing stops the clock and resuming starts it.
            changed = status.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// For ever, while the command's clock stands still.
async fn sleep(left: Option<Duration>) {
    match left {
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
