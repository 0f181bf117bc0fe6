//! Timeouts of a sandbox: pause when idle, terminate or pause at the end of its timeout, terminate at the end of the retention
//! of paused sandboxes.

use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId};
use base::millis;
use rules::{Due, Operation, TimeMs, Watch, decide, next_deadline};
use serde_json::json;
use store::{NewEvent, SandboxRecord};
use tokio::sync::Notify;

use super::Actor;
use super::workload::Workload;
use crate::actor::timer::Timer;
use crate::error::EngineError;
use crate::record::events;
use crate::record::status::Status;
use crate::registry::mailbox::TimeoutChange;

/// The delay after a timeout that could not be carried out.
const RETRY: Duration = Duration::from_secs(5);
/// The delay after a hibernation that a process inside does not allow.
const HIBERNATION_RETRY: Duration = Duration::from_secs(600);
/// The timer accepts at most two years. Waking up too early is harmless.
const LONGEST_WAIT: Duration = Duration::from_secs(300 * 24 * 3600);

/// Changes the timeout, paused or not.
pub(super) async fn change_timeout(actor: &mut Actor, change: TimeoutChange) -> Result<Status, EngineError> {
    decide(actor.record.state(), Operation::Timeout)?;
    let now = actor.context.stamped_store.now();
    if let Some((next, event)) = changed(&actor.record, change, now) {
        actor.commit_events(next, vec![event], now).await?;
    }
    Ok(actor.status.borrow().clone())
}

/// The next record with another timeout, which counts from `at`, and the event. `None` if nothing changes.
///
/// A paused sandbox does not run, so its timeout counts from its resume. A timeout of 0 is used up at once; the configured
/// timeout keeps its value, which a later resume needs.
fn changed(record: &SandboxRecord, change: TimeoutChange, at: TimeMs) -> Option<(SandboxRecord, NewEvent)> {
    let lifetime_ms = record.lifecycle.running_ms(at).saturating_add(change.timeout_ms());
    if matches!(change, TimeoutChange::Extend(_)) && lifetime_ms <= record.lifetime_ms {
        return None;
    }
    let mut next = record.clone();
    next.lifetime_ms = lifetime_ms;
    if change.timeout_ms() > 0 {
        next.config.timeout_ms = change.timeout_ms();
    }
    let mut data = json!({ "timeoutMs": change.timeout_ms() });
    if let Some(expires) = next.expires_at() {
        data["expiresAt"] = json!(api::Timestamp::from(expires));
    }
    let event = events::of_sandbox(&next, at, EventKind::SandboxTimeoutChanged, data);
    Some((next, event))
}

/// Gives a sandbox that is about to run its configured timeout again if it has none left.
pub(super) fn renew(next: &mut SandboxRecord) {
    let ran_ms = next.lifecycle.finished_ms();
    if ran_ms >= next.lifetime_ms {
        next.lifetime_ms = ran_ms.saturating_add(next.config.timeout_ms);
    }
}

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
    /// The earliest next attempt to hibernate it without a request.
    hibernation_not_before: TimeMs,
}

impl Timeouts {
    pub fn new(timer: Timer, id: SandboxId, now: TimeMs) -> Self {
        let reached = Arc::new(Notify::new());
        Self {
            timer,
            id,
            reached,
            last_activity: now,
            armed: None,
            not_before: TimeMs(0),
            hibernation_not_before: TimeMs(0),
        }
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
    pub fn watch<'a>(
        &self,
        record: &'a SandboxRecord,
        workload: &Workload,
        paused_retention_ms: u64,
        hibernate_after_ms: Option<u64>,
    ) -> Watch<'a> {
        Watch {
            lifecycle: &record.lifecycle,
            activity: workload.activity(self.last_activity),
            lifetime_ms: record.lifetime_ms,
            on_timeout: record.config.on_timeout,
            idle_timeout_ms: record.config.idle_timeout_ms,
            paused_retention_ms,
            hibernate_after_ms,
            hibernate_not_before: self.hibernation_not_before,
        }
    }

    /// Sets the timer to the next deadline, unless it is set to an earlier time: an early notification costs less than setting the
    /// timer again for each command.
    pub fn arm(&mut self, watch: &Watch<'_>, now: TimeMs) {
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
    pub fn due(&mut self, watch: &Watch<'_>, now: TimeMs) -> Option<Due> {
        self.armed = None;
        next_deadline(watch).filter(|deadline| deadline.is_due(now)).map(|deadline| deadline.what)
    }

    /// Whether it may be hibernated without a request.
    pub fn allow_hibernation(&self, now: TimeMs) -> bool {
        self.hibernation_not_before <= now
    }

    /// The sandbox cannot be hibernated as it is.
    pub fn retry_hibernation(&mut self, now: TimeMs) {
        self.hibernation_not_before = now.after(millis(HIBERNATION_RETRY));
    }

    /// What is due could not be carried out.
    pub fn retry_later(&mut self, now: TimeMs) {
        self.not_before = now.after(millis(RETRY));
    }
}
