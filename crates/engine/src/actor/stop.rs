//! Pause without processes: ends them and keeps the disk.

use api::EventKind;
use rules::{Operation, PausedProcesses, decide};
use serde_json::json;

use super::Actor;
use super::end::end_processes;
use super::loss::processes_lost;
use crate::error::EngineError;
use crate::record::status::PauseResult;

/// The note of a sandbox whose processes ended at a pause.
const STOPPED: &str = "its processes ended at the pause; its disk is unchanged";

/// Pauses a running sandbox without its processes.
pub(super) async fn stop(actor: &mut Actor, reason: &str) -> Result<PauseResult, EngineError> {
    decide(actor.record.state(), Operation::Pause)?;
    end_processes(actor).await?;
    actor.reservation.lower(actor.processes.state());
    let now = actor.context.stamped_store.now();
    let next = actor
        .next_record(actor.record.lifecycle.paused(now, PausedProcesses::Ended { note: STOPPED.to_owned() }));
    let runtime_duration_ms = next.lifecycle.finished_ms();
    let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
    if let Err(error) = actor.commit(next, EventKind::SandboxPaused, data, now).await {
        processes_lost(actor).await?;
        return Err(error.into());
    }
    actor.context.counters.paused(reason);
    Ok(PauseResult { id: actor.id().clone(), paused_at: now, runtime_duration_ms })
}
