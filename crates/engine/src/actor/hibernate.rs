//! Hibernation: the processes of a sandbox are stored on its disk and leave the memory.
//!
//! ```text
//! store and end the processes -> release what the sandbox holds -> commit
//! ```
//!
//! What is stored counts in the account's quota of disk. From the first step on the processes are on the disk, whatever the record says:
//! a crash in between loses nothing. A sandbox whose isolation cannot store processes has its memory moved to swap space instead.

use api::{EventKind, SandboxState};
use rules::{Operation, ProcessState, RepeatableWork, decide};
use serde_json::json;

use super::loss::{has_lost_processes, processes_lost};
use super::pause::{ON_REQUEST, paused_result};
use super::stored_processes::{can_store_processes, check_isolation, count_stored_processes};
use super::{Actor, LinkedProcesses};
use crate::capacity::ledger::QuotaCheck;
use crate::error::{EngineError, SandboxError};
use crate::host::guest;
use crate::record::events;
use crate::record::status::PauseResult;

/// The reason of a hibernation, as the event carries it.
pub const MEMORY_PRESSURE: &str = "memory_pressure";

/// Pauses the sandbox, if it runs, and stores its processes. Succeeds if it has none.
pub(super) async fn hibernate(
    actor: &mut Actor,
    reason: &str,
    check: QuotaCheck,
) -> Result<PauseResult, EngineError> {
    decide(actor.record.state(), Operation::Hibernate)?;
    match actor.processes.state() {
        ProcessState::Running | ProcessState::Frozen => {
            admit_stored_processes(actor, check).await?;
            let stored = store_processes(actor).await;
            count_stored_processes(actor).await;
            stored?;
        }
        ProcessState::Stored if actor.record.lifecycle.hibernated_at().is_none() => {}
        ProcessState::Stored | ProcessState::Ended => return Ok(paused_result(actor)),
    }
    commit_hibernated(actor, reason).await?;
    Ok(paused_result(actor))
}

/// Whether the sandbox holds memory that it does not need while it is paused.
pub(super) fn can_free_memory(actor: &Actor) -> bool {
    actor.processes.state() == ProcessState::Frozen
        && (can_store_processes(actor) || actor.paged_out != actor.record.lifecycle.paused_since())
}

/// Hibernates a paused sandbox. If its isolation cannot store processes, moves its memory to the host's swap space, once for
/// each pause. Returns whether that freed memory.
pub(super) async fn free_memory(actor: &mut Actor, reason: &str) -> Result<bool, EngineError> {
    if !can_free_memory(actor) {
        return Ok(false);
    }
    if can_store_processes(actor) {
        if !actor.timeouts.allow_hibernation(actor.context.stamped_store.now()) {
            return Ok(false);
        }
        // It frees memory of the host, so no quota prevents it.
        return hibernate(actor, reason, QuotaCheck::CountOnly).await.map(|_| true);
    }
    actor.paged_out = actor.record.lifecycle.paused_since();
    let bytes = actor.context.host.driver().page_out(actor.id()).await?;
    if bytes > 0 {
        tracing::debug!(id = %actor.id(), bytes, "moved the memory of a paused sandbox to swap space");
        actor.context.counters.paged_out.add(1);
    }
    Ok(bytes > 0)
}

/// Counts what the processes are going to take on the disk: at most their memory.
async fn admit_stored_processes(actor: &mut Actor, check: QuotaCheck) -> Result<(), EngineError> {
    let used = actor.context.host.driver().resource_use(actor.id()).await?;
    let bytes = used.map_or(0, |used| used.memory);
    Ok(actor.reservation.set_stored_bytes(bytes, check)?)
}

/// Stores the processes and ends them. After a failure they run or are frozen as before, or their loss is recorded.
async fn store_processes(actor: &mut Actor) -> Result<(), EngineError> {
    check_isolation(actor).await?;
    if actor.context.host.has_read_only_disk(actor.id()).await {
        // The disk lacks what the processes have written last, also once it is mounted again: they must not continue on it.
        actor.timeouts.retry_hibernation(actor.context.stamped_store.now());
        return Err(SandboxError::ReadOnlyDisk.into());
    }
    let driver = actor.context.host.driver();
    let work = actor.begin_work(RepeatableWork::Hibernation).await.map_err(EngineError::of_hibernation);
    let work = work.inspect_err(|_| actor.timeouts.retry_hibernation(actor.context.stamped_store.now()))?;
    let stored = driver.hibernate(actor.id()).await;
    work.end().await;
    if stored.is_err() {
        actor.timeouts.retry_hibernation(actor.context.stamped_store.now());
    }
    // If only what follows the storing has failed, the next attempt records it.
    if stored.is_err()
        && !matches!(actor.context.host.process_state(actor.id()).await, Ok(ProcessState::Stored))
    {
        if has_lost_processes(actor).await {
            processes_lost(actor).await?;
        }
        return Ok(stored.map(drop)?);
    }
    actor.processes = LinkedProcesses::Stored;
    actor.publish_agent();
    actor.context.counters.hibernated.add(1);
    if let Err(error) = actor.context.host.stop(&guest(&actor.record)).await {
        tracing::error!(id = %actor.id(), %error, "could not remove what a hibernated sandbox left on the host");
    }
    actor.reservation.lower(actor.processes.state());
    Ok(stored.map(drop)?)
}

/// Records that the processes are stored.
async fn commit_hibernated(actor: &mut Actor, reason: &str) -> Result<(), EngineError> {
    let now = actor.context.stamped_store.now();
    let next = actor.next_record(actor.record.lifecycle.hibernated(now, now));
    let mut recorded = Vec::new();
    if actor.record.state() == SandboxState::Running {
        let runtime_duration_ms = next.lifecycle.finished_ms();
        let data = json!({ "runtimeDurationMs": runtime_duration_ms, "reason": reason });
        recorded.push(events::of_sandbox(&next, now, EventKind::SandboxPaused, data));
        actor.context.counters.paused(reason);
    }
    let data = json!({ "reason": reason });
    recorded.push(events::of_sandbox(&next, now, EventKind::SandboxHibernated, data));
    Ok(actor.commit_events(next, recorded, now).await?)
}

/// Records a hibernation whose record could not be committed before.
pub(super) async fn settle_hibernation(actor: &mut Actor) -> Result<(), EngineError> {
    if actor.processes.state() == ProcessState::Stored && actor.record.state() == SandboxState::Running {
        commit_hibernated(actor, ON_REQUEST).await?;
    }
    Ok(())
}
