//! Corrections of a sandbox's record after what the host has of it. Each is committed with its event and cost, and returns the new record.

use api::{EventKind, Isolation};
use rules::{PausedProcesses, TimeMs};
use serde_json::json;
use store::SandboxRecord;

use crate::error::EngineError;
use crate::host::Host;
use crate::record::events;
use crate::services::Services;

/// Corrects a record of a version in which one runtime isolated all sandboxes.
pub async fn isolation_found(
    services: &Services,
    before: SandboxRecord,
    isolation: Isolation,
) -> Result<SandboxRecord, EngineError> {
    let mut next = before.clone();
    next.config.isolation = isolation;
    next.revision += 1;
    let now = services.stamped_store.now();
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch).await?;
    Ok(next)
}

/// Records a hibernation that was carried out, and whose end was not recorded.
pub async fn hibernated(services: &Services, before: SandboxRecord) -> Result<SandboxRecord, EngineError> {
    let now = services.stamped_store.now();
    let mut next = before.clone();
    next.lifecycle = before.lifecycle.hibernated(end_of_run(&services.host, &before, now).await, now);
    next.revision += 1;
    let data = json!({ "reason": "recovered" });
    let event = events::of_sandbox(&next, now, EventKind::SandboxHibernated, data);
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch.event(event)).await?;
    Ok(next)
}

/// Records that the processes of a hibernated sandbox are in memory again.
pub async fn woken(services: &Services, before: SandboxRecord) -> Result<SandboxRecord, EngineError> {
    let now = services.stamped_store.now();
    let mut next = before.clone();
    // Woken after a rollback, it uses the prepared disk.
    next.lifecycle = before.lifecycle.paused(now, PausedProcesses::Frozen).with_own_disk();
    next.revision += 1;
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch).await?;
    Ok(next)
}

/// Records that the sandbox has no processes, and why.
pub async fn ended(
    services: &Services,
    before: SandboxRecord,
    note: &str,
) -> Result<SandboxRecord, EngineError> {
    let now = services.stamped_store.now();
    let mut next = before.clone();
    let processes = PausedProcesses::Ended { note: note.to_owned() };
    next.lifecycle = before.lifecycle.paused(end_of_run(&services.host, &before, now).await, processes);
    next.revision += 1;
    let data = json!({ "message": note });
    let event = events::of_sandbox(&next, now, EventKind::SandboxError, data);
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch.event(event)).await?;
    Ok(next)
}

/// The running time ends when the sandbox was last known to run, not when the daemon found it.
async fn end_of_run(host: &Host, record: &SandboxRecord, now: TimeMs) -> TimeMs {
    let Some(started) = record.lifecycle.running_since() else { return now };
    let seen = host.driver().last_seen_running_ms(&record.id).await.unwrap_or_else(|error| {
        tracing::warn!(id = %record.id, %error, "could not find out when a sandbox ended");
        None
    });
    TimeMs(seen.unwrap_or(started.0)).max(started).min(now)
}
