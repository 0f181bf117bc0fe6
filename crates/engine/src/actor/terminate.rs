//! Terminate: commits the end of a sandbox, kills its processes, and removes it from the host in the background.
//!
//! After a crash in between the recovery finds no living record, and removes the sandbox.

use std::sync::Arc;
use std::time::Duration;

use api::EventKind;
use rules::{Operation, decide};
use serde_json::json;

use super::Actor;
use crate::capacity::ledger::QuotaCheck;
use crate::error::EngineError;
use crate::host::guest;
use crate::record::events;
use crate::record::status::TerminateResult;

const REMOVAL_ATTEMPTS: u32 = 5;
const REMOVAL_INTERVAL: Duration = Duration::from_secs(10);

/// Terminates a sandbox. Its actor ends then.
pub(super) async fn terminate(actor: &mut Actor, reason: &str) -> Result<TerminateResult, EngineError> {
    decide(actor.record.state(), Operation::Terminate)?;
    let now = actor.context.stamped_store.now();
    let mut next = actor.next_record(actor.record.lifecycle.terminated(now, reason));
    next.ports.clear();
    let total_runtime_ms = next.lifecycle.finished_ms();
    let data = json!({ "reason": reason, "totalRuntimeMs": total_runtime_ms });
    let mut events = actor.executions.final_events(&next, now);
    events.push(events::of_sandbox(&next, now, EventKind::SandboxTerminated, data));
    actor.commit_events(next, events, now).await?;
    actor.context.counters.terminated(reason);
    if let Err(error) = actor.context.host.driver().kill(actor.id()).await {
        tracing::error!(id = %actor.id(), %error, "could not kill a terminated sandbox; its removal retries");
    }
    actor.context.registry.remove(actor.id());
    // Released before the reply, so that the caller can use the capacity at once.
    actor.reservation.release();
    remove_in_background(actor);
    Ok(TerminateResult { id: actor.id().clone(), terminated_at: now, total_runtime_ms })
}

/// Removes the sandbox from the host. Its range of user ids and its address are released when nothing is left of it.
fn remove_in_background(actor: &mut Actor) {
    let context = Arc::clone(&actor.context);
    // Its layers may be the last trace of a deleted snapshot.
    context.snapshots.request_sweep();
    let guest = guest(&actor.record);
    let slot = actor.slot.take();
    let ledger = Arc::clone(&context.ledger);
    let (account, disk_bytes) =
        (actor.record.account.clone(), u64::from(actor.record.config.resources.disk_mb) << 20);
    actor.context.tasks.spawn(async move {
        if let Err(error) = context.detached.remove(guest.id.clone()).await {
            tracing::error!(id = %guest.id, %error, "could not remove the executions of a terminated sandbox");
        }
        let mut retained = None;
        for attempt in 1..=REMOVAL_ATTEMPTS {
            match context.host.remove(&guest).await {
                Ok(()) => return,
                Err(error) => {
                    tracing::error!(id = %guest.id, %error, attempt, "could not remove a terminated sandbox");
                }
            }
            // A removal takes a moment, so its disk counts only if it stays.
            retained =
                retained.or_else(|| ledger.retain(&account, disk_bytes, QuotaCheck::CountOnly).ok());
            // After the last attempt, or when the engine stops, the next recovery removes the sandbox.
            if context.tasks.until_stopped(tokio::time::sleep(REMOVAL_INTERVAL)).await.is_none() {
                break;
            }
        }
        if let Some(slot) = slot {
            slot.keep();
        }
        if let Some(retained) = retained {
            retained.keep();
        }
    });
}
