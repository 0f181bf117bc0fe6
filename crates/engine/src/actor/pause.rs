//! Pause: freezes the processes of a running sandbox.

use api::EventKind;
use rules::{Operation, PausedProcesses, ProcessState, decide};
use serde_json::json;

use super::Actor;
use super::loss::{has_lost_processes, processes_lost};
use crate::error::EngineError;
use crate::record::status::PauseResult;

/// Reasons of a pause.
pub const ON_REQUEST: &str = "request";
/// The sandbox wrote while the host's disk was almost full.
pub const DISK_PRESSURE: &str = "disk_pressure";

/// Freezes a running sandbox. If its processes have ended unnoticed, it is paused without them.
pub(super) async fn pause(actor: &mut Actor, reason: &str) -> Result<PauseResult, EngineError> {
    decide(actor.record.state(), Operation::Pause)?;
    if let Err(error) = actor.context.host.driver().pause(actor.id()).await {
        if has_lost_processes(actor).await {
            // The processes ended unnoticed, which leaves the sandbox paused.
            processes_lost(actor).await?;
            return Ok(paused_result(actor));
        }
        undo_pause(actor).await;
        return Err(error.into());
    }
    let now = actor.context.stamped_store.now();
    let next = actor.next_record(actor.record.lifecycle.paused(now, PausedProcesses::Frozen));
    let runtime_duration_ms = next.lifecycle.finished_ms();
    let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
    if let Err(error) = actor.commit(next, EventKind::SandboxPaused, data, now).await {
        undo_pause(actor).await;
        return Err(error.into());
    }
    actor.context.counters.paused(reason);
    actor.processes.freeze();
    actor.reservation.lower(actor.processes.state());
    Ok(PauseResult { id: actor.id().clone(), paused_at: now, runtime_duration_ms })
}

/// The pause in which the sandbox is.
pub(super) fn paused_result(actor: &Actor) -> PauseResult {
    PauseResult {
        id: actor.id().clone(),
        paused_at: actor.record.lifecycle.paused_since().unwrap_or(actor.record.created_at),
        runtime_duration_ms: actor.record.lifecycle.finished_ms(),
    }
}

/// Thaws the sandbox after a failed pause, if it is frozen.
async fn undo_pause(actor: &Actor) {
    let host = &actor.context.host;
    let thawed = match host.process_state(actor.id()).await {
        Ok(ProcessState::Frozen) => host.driver().resume(actor.id()).await,
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    if let Err(error) = thawed {
        tracing::error!(id = %actor.id(), %error, "could not undo a failed pause");
    }
}
