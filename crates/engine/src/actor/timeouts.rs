//! Timeouts of a sandbox: pause when idle, terminate at the end of the lifetime or of the retention of paused sandboxes.

use std::sync::Arc;
use std::time::Duration;

use api::SandboxId;
use rules::{Activity, Due, TimeMs, Watch, next_deadline};
use store::SandboxRecord;
use tokio::sync::Notify;

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

    /// What the deadlines of a sandbox depend on.
    pub fn watch(&self, record: &SandboxRecord, is_busy: bool, paused_retention_ms: u64) -> Watch {
        Watch {
            state: record.state,
            accounting: record.accounting,
            activity: if is_busy { Activity::Busy } else { Activity::QuietSince(self.last_activity) },
            timeout_ms: record.config.timeout_ms,
            idle_timeout_ms: record.config.idle_timeout_ms,
            paused_retention_ms,
        }
    }

    /// Sets the timer to the next deadline, unless it is set to an earlier time: an early notification costs less than setting the
    /// timer again for each command.
    pub fn arm(&mut self, watch: &Watch, now: TimeMs) {
        let Some(deadline) = next_deadline(watch) else { return };
        let at = deadline.at.max(self.not_before);
        if self.armed.is_some_and(|armed| armed <= at) {
            return;
        }
        let wait = Duration::from_millis(at.since(now)).min(LONGEST_WAIT);
        self.timer.set(self.id.clone(), wait, Arc::clone(&self.reached));
        self.armed = Some(at);
    }

    /// What is due after a notification, if anything.
    pub fn due(&mut self, watch: &Watch, now: TimeMs) -> Option<Due> {
        self.armed = None;
        next_deadline(watch).filter(|deadline| deadline.is_due(now)).map(|deadline| deadline.what)
    }

    /// What is due could not be carried out.
    pub fn retry_later(&mut self, now: TimeMs) {
        self.not_before = now.after(millis(RETRY));
    }
}
