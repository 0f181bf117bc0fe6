//! Due: what happens to a sandbox by itself, when a timeout is reached.

use std::ops::ControlFlow;
use std::sync::Arc;

use api::ProcessesAtTimeout;
use rules::{AutoPause, Due, TimeMs, Watch};
use store::SandboxRecord;

use super::Actor;
use super::hibernate::{can_free_memory, free_memory};
use super::pause::pause;
use super::stop::stop;
use super::terminate::terminate;
use crate::error::EngineError;
use crate::record::status::PauseResult;

/// The reason of a hibernation of a sandbox that stays paused.
const AFTER_PAUSE: &str = "paused";

/// Sets the timer to the next deadline.
pub(super) fn arm_timeout(actor: &mut Actor) {
    let record = Arc::clone(&actor.record);
    let (watch, now) = watch_of(actor, &record);
    actor.timeouts.arm(&watch, now);
}

/// Pauses or terminates the sandbox if its timeout is due.
pub(super) async fn run_due_timeout(actor: &mut Actor) -> ControlFlow<()> {
    let record = Arc::clone(&actor.record);
    let (watch, now) = watch_of(actor, &record);
    let Some(due) = actor.timeouts.due(&watch, now) else { return ControlFlow::Continue(()) };
    let account = &*record.account;
    let result = match due {
        Due::Pause(cause) => pause_automatically(actor, cause).await.map(|_| {
            tracing::info!(id = %record.id, account, reason = cause.reason(), "paused a sandbox without a request");
            ControlFlow::Continue(())
        }),
        Due::FreeMemory => free_memory(actor, AFTER_PAUSE).await.map(|_| ControlFlow::Continue(())),
        Due::Expire(expiry) => terminate(actor, expiry.reason()).await.map(|_| {
            tracing::info!(id = %record.id, account, reason = expiry.reason(), "terminated a sandbox without a request");
            ControlFlow::Break(())
        }),
    };
    result.unwrap_or_else(|error| {
        if error.prevents_hibernation() {
            tracing::debug!(id = %actor.id(), %error, "a paused sandbox stays in memory");
            return ControlFlow::Continue(());
        }
        tracing::error!(id = %actor.id(), %error, ?due, "could not pause or terminate a sandbox at its timeout; retrying");
        actor.timeouts.retry_later(now);
        ControlFlow::Continue(())
    })
}

/// Pauses a sandbox as its owner wants it at this cause.
async fn pause_automatically(actor: &mut Actor, cause: AutoPause) -> Result<PauseResult, EngineError> {
    match (cause, actor.record.config.processes_at_timeout) {
        (AutoPause::Timeout, ProcessesAtTimeout::Ended) => stop(actor, cause.reason()).await,
        _ => pause(actor, cause.reason()).await,
    }
}

/// What the deadlines depend on, and the time.
fn watch_of<'a>(actor: &Actor, record: &'a SandboxRecord) -> (Watch<'a>, TimeMs) {
    let retention_ms = actor.context.limits.paused_retention_ms;
    let hibernate_after_ms = actor.context.limits.hibernate_after_ms;
    let may_free = hibernate_after_ms > 0 && can_free_memory(actor);
    let hibernate_after_ms = may_free.then_some(hibernate_after_ms);
    let watch = actor.timeouts.watch(record, &actor.workload, retention_ms, hibernate_after_ms);
    (watch, actor.context.stamped_store.now())
}
