//! Timeouts of a sandbox: pause when idle, terminate at the end of the lifetime or of the retention of paused sandboxes.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use rules::{Activity, Due, TimeMs, Watch, next_deadline};
use tokio::sync::Notify;

use super::{Actor, lifecycle};
use crate::clock::millis;
use crate::timer::Timer;

/// The delay after a timeout that could not be carried out.
const RETRY: Duration = Duration::from_secs(5);
/// The timer accepts at most two years. Waking up too early is harmless.
const LONGEST_WAIT: Duration = Duration::from_secs(300 * 24 * 3600);

/// The sandbox's entry in the timer, and its last activity.
pub(super) struct Timeouts {
    timer: Timer,
    id: SandboxId,
    reached: Arc<Notify>,
    last_activity: TimeMs,
    /// The time that the timer is set to.
    armed: Option<TimeMs>,
    /// The earliest next attempt after a failed one.
    not_before: TimeMs,
}

impl Timeouts {
    pub fn new(timer: Timer, id: SandboxId, now: TimeMs) -> Self {
        let reached = Arc::new(Notify::new());
        Self { timer, id, reached, last_activity: now, armed: None, not_before: TimeMs(0) }
    }

    /// Notified when a timeout may be due.
    pub fn reached(&self) -> Arc<Notify> {
        Arc::clone(&self.reached)
    }

    pub fn touch(&mut self, now: TimeMs) {
        self.last_activity = now;
    }

    pub fn clear(&self) {
        self.timer.clear(self.id.clone());
    }

    /// Sets the timer, unless it is set to an earlier time: an early notification costs less than setting the timer again for each
    /// command.
    fn arm(&mut self, at: TimeMs, now: TimeMs) {
        let at = at.max(self.not_before);
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        let wait = Duration::from_millis(at.since(now)).min(LONGEST_WAIT);
        self.timer.set(self.id.clone(), wait, Arc::clone(&self.reached));
        self.armed = Some(at);
    }
}

impl Actor {
    pub(super) fn arm_timeout(&mut self) {
        if let Some(deadline) = next_deadline(&self.watch()) {
            self.timeouts.arm(deadline.at, self.context.stamped_store.now());
        }
    }

    /// Carries out the timeout that is due, if any.
    pub(super) async fn run_due_timeout(&mut self) -> ControlFlow<()> {
        self.timeouts.armed = None;
        let now = self.context.stamped_store.now();
        let Some(deadline) = next_deadline(&self.watch()).filter(|deadline| deadline.is_due(now)) else {
            return ControlFlow::Continue(());
        };
        let result = match deadline.what {
            Due::AutoPause => self.pause(lifecycle::IDLE).await.map(|_| ControlFlow::Continue(())),
            Due::Expire(expiry) => self.terminate(expiry.reason()).await.map(|_| ControlFlow::Break(())),
        };
        result.unwrap_or_else(|error| {
            tracing::error!(id = %self.id(), %error, due = ?deadline.what, "could not pause or terminate a sandbox at its timeout; retrying");
            self.timeouts.not_before = now.after(millis(RETRY));
            ControlFlow::Continue(())
        })
    }

    fn watch(&self) -> Watch {
        let quiet_since = self.timeouts.last_activity;
        Watch {
            state: self.record.state,
            accounting: self.record.accounting,
            activity: if self.workload.is_busy() {
                Activity::Busy
            } else {
                Activity::QuietSince(quiet_since)
            },
            timeout_ms: self.record.config.timeout_ms,
            idle_timeout_ms: self.record.config.idle_timeout_ms,
            paused_retention_ms: self.context.limits.paused_retention_ms,
        }
    }
}
