//! Recovery at the start of the engine: makes the host agree with the records.
//!
//! | Record | On the host | Action |
//! |---|---|---|
//! | none, or terminated | anything | removed |
//! | running | running | adopted; commands of the earlier daemon's clients are killed |
//! | running | frozen  | thawed: the pause was not committed |
//! | paused  | frozen  | adopted |
//! | paused  | running | frozen: the resume was not committed |
//! | running, paused | stored processes | hibernated: that was not committed |
//! | hibernated | running, frozen | paused, frozen: the resume was not committed |
//! | hibernated | anything else | hibernated; if what was stored is missing, its resume says so |
//! | running, paused | no process | paused on its disk, with a note that its processes ended |
//!
//! The network is recovered between the removals and the rest: all recorded policies are enforced before any sandbox is
//! reachable. A sandbox that cannot be inspected or changed is logged and kept as its record says; its next request tries again.

use std::collections::HashMap;
use std::fmt::Display;

use api::{EventKind, Isolation, SandboxId, SandboxState};
use driver::Presence;
use futures_util::StreamExt;
use rules::{Hold, TimeMs};
use serde_json::json;
use store::{NewEvent, SandboxRecord};

use crate::actor::{self, ActorInit, PROCESSES_LOST};
use crate::error::EngineError;
use crate::events;
use crate::host::{Host, guest};
use crate::object_store;
use crate::services::Services;

/// The number of sandboxes that are recovered at a time.
const CONCURRENCY: usize = 16;

/// What the recovery found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    pub running: usize,
    pub paused: usize,
    /// Paused sandboxes with stored processes.
    pub hibernated: usize,
    /// Paused sandboxes without processes.
    pub stopped: usize,
    /// Removed sandboxes without a record.
    pub orphans: usize,
}

pub async fn recover(services: &Services) -> Result<Recovered, EngineError> {
    let records = services.stamped_store.store().living().await?;
    let known: HashMap<SandboxId, bool> =
        records.iter().map(|record| (record.id.clone(), record.has_prepared_disk)).collect();
    let found = services.host.driver().list().await?;
    let orphans: Vec<SandboxId> = found.into_iter().filter(|id| !known.contains_key(id)).collect();
    let mut recovered = Recovered { orphans: orphans.len(), ..Recovered::default() };

    // Orphans are removed first, because their ranges of user ids are free for new sandboxes.
    futures_util::stream::iter(orphans)
        .for_each_concurrent(CONCURRENCY, async |id| {
            if let Err(error) = services.host.driver().destroy(&id).await {
                tracing::error!(%id, %error, "could not remove a sandbox without a record");
            }
        })
        .await;

    let policies: Vec<_> =
        records.iter().map(|record| (guest(record), record.config.network.egress.clone())).collect();
    services.host.network().recover(&policies).await?;
    services.detached.recover(known).await?;
    for snapshot in services.stamped_store.store().snapshots().await? {
        services.snapshots.insert(snapshot);
    }
    object_store::find_remote(services).await?;

    let mut adopted = futures_util::stream::iter(records)
        .map(|record| adopt(services, record))
        .buffer_unordered(CONCURRENCY);
    while let Some(adopted) = adopted.next().await {
        let Adopted { hold, is_hibernated } = adopted?;
        match hold {
            Hold::Running => recovered.running += 1,
            Hold::Paused => recovered.paused += 1,
            Hold::Stopped if is_hibernated => recovered.hibernated += 1,
            Hold::Stopped => recovered.stopped += 1,
        }
    }
    Ok(recovered)
}

/// What a recovered sandbox holds.
struct Adopted {
    hold: Hold,
    is_hibernated: bool,
}

/// Brings a sandbox to the state of its record, and starts its actor.
async fn adopt(services: &Services, mut record: SandboxRecord) -> Result<Adopted, EngineError> {
    let driver = services.host.driver();
    let id = record.id.clone();
    settle_prepared_disk(services, &record).await;
    let inspected = driver.inspect(&id).await;
    let is_known = inspected.is_ok();
    let presence = inspected.unwrap_or_else(|error| {
        tracing::error!(%id, %error, "could not inspect a sandbox; keeping the state of its record");
        presence_by_record(&record)
    });
    // Never a weaker one: a start that a crash has interrupted may not have recorded its isolation on the host yet.
    let found = driver.isolation(&id).await;
    if let Some(isolation) = found.filter(|found| *found > record.config.isolation) {
        record = record_isolation(services, record, isolation).await?;
    }
    let hold = match (record.state, presence) {
        (_, Presence::Hibernated) => {
            record = adopt_hibernated(services, record, found.is_some()).await?;
            Hold::Stopped
        }
        (_, Presence::Stopped | Presence::Absent) if record.hibernated_at.is_some() => {
            log_failure(&id, services.host.stop(&guest(&record)).await);
            Hold::Stopped
        }
        (SandboxState::Paused, Presence::Paused | Presence::Running) if record.hibernated_at.is_some() => {
            if presence == Presence::Running {
                log_failure(&id, driver.pause(&id).await);
            }
            record = record_wake(services, record).await?;
            Hold::Paused
        }
        // Its processes were lost, and the daemon crashed while it started them again.
        (SandboxState::Paused, Presence::Paused | Presence::Running) if record.note.is_some() => {
            log_failure(&id, services.host.stop(&guest(&record)).await);
            Hold::Stopped
        }
        (SandboxState::Paused, Presence::Paused) => Hold::Paused,
        (SandboxState::Paused, Presence::Running) => {
            log_failure(&id, driver.pause(&id).await);
            Hold::Paused
        }
        (_, Presence::Paused) => {
            log_failure(&id, driver.resume(&id).await);
            Hold::Running
        }
        (_, Presence::Running) => Hold::Running,
        (_, Presence::Stopped | Presence::Absent) => {
            record = record_loss(services, record).await?;
            Hold::Stopped
        }
    };
    if is_known && record.hibernated_at.is_none() {
        // Of a wake whose end was not seen.
        log_failure(&id, driver.discard_memory(&id).await);
    }
    if hold != Hold::Stopped && !services.host.network().is_plugged(&guest(&record)).await {
        tracing::warn!(%id, "a sandbox has lost its network link: it has no network until it is stopped and started again");
    }
    let reservation = services.ledger.adopt(record.config.resources, hold, &record.account);
    let slot = services.ledger.adopt_slot(record.slot);
    let is_hibernated = record.hibernated_at.is_some();
    actor::spawn(&services.actors, ActorInit { record, agent: None, reservation, slot });
    Ok(Adopted { hold, is_hibernated })
}

fn presence_by_record(record: &SandboxRecord) -> Presence {
    match record.state {
        SandboxState::Paused if record.hibernated_at.is_some() => Presence::Hibernated,
        SandboxState::Paused => Presence::Paused,
        _ => Presence::Running,
    }
}

/// Without remains of a container there is nothing to do: a restart with many hibernated sandboxes is fast.
async fn adopt_hibernated(
    services: &Services,
    record: SandboxRecord,
    has_remains: bool,
) -> Result<SandboxRecord, EngineError> {
    let is_recorded = record.hibernated_at.is_some();
    if has_remains || !is_recorded {
        log_failure(&record.id, services.host.stop(&guest(&record)).await);
    }
    // With a note, a cold resume was about to discard the stored processes.
    if is_recorded || record.note.is_some() {
        return Ok(record);
    }
    record_hibernation(services, record).await
}

/// Finishes or forgets a rollback that a crash has interrupted.
async fn settle_prepared_disk(services: &Services, record: &SandboxRecord) {
    let driver = services.host.driver();
    let settled = if record.has_prepared_disk {
        driver.adopt_disk(&record.id).await
    } else {
        driver.discard_prepared_disk(&record.id).await
    };
    // The next start tries again.
    log_failure(&record.id, settled);
}

fn log_failure(id: &SandboxId, result: Result<(), impl Display>) {
    if let Err(error) = result {
        tracing::error!(%id, %error, "could not bring a sandbox to the state of its record");
    }
}

/// Corrects a record of a version in which one runtime isolated all sandboxes.
async fn record_isolation(
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

/// Records a hibernation that was carried out.
async fn record_hibernation(
    services: &Services,
    before: SandboxRecord,
) -> Result<SandboxRecord, EngineError> {
    let now = services.stamped_store.now();
    let mut next = before.clone();
    next.hibernated_at = Some(now);
    if next.state != SandboxState::Paused {
        let ended = last_seen_running(&services.host, &next, now).await;
        next.state = SandboxState::Paused;
        next.paused_at = Some(ended);
        next.accounting.paused(ended);
    }
    next.revision += 1;
    let event = NewEvent {
        at: now,
        ..events::of_sandbox(&next, EventKind::SandboxHibernated, json!({ "reason": "recovered" }))
    };
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch.event(event)).await?;
    Ok(next)
}

/// Records that the processes of a hibernated sandbox are in memory again.
async fn record_wake(services: &Services, before: SandboxRecord) -> Result<SandboxRecord, EngineError> {
    let now = services.stamped_store.now();
    let mut next = before.clone();
    next.hibernated_at = None;
    // Woken after a rollback, it uses the prepared disk, and its processes are not lost, whatever the note says.
    next.has_prepared_disk = false;
    next.note = None;
    next.revision += 1;
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch).await?;
    Ok(next)
}

/// Records that the sandbox's processes ended, unless its record says so already.
async fn record_loss(services: &Services, before: SandboxRecord) -> Result<SandboxRecord, EngineError> {
    // The runtime may have left parts of the container.
    log_failure(&before.id, services.host.stop(&guest(&before)).await);
    if before.state == SandboxState::Paused && before.note.is_some() {
        return Ok(before);
    }
    let now = services.stamped_store.now();
    let mut next = before.clone();
    if next.state != SandboxState::Paused {
        // The running time ends when the sandbox was last known to run, not when the daemon found it.
        let ended = last_seen_running(&services.host, &next, now).await;
        next.state = SandboxState::Paused;
        next.paused_at = Some(ended);
        next.accounting.paused(ended);
    }
    next.note = Some(PROCESSES_LOST.to_owned());
    next.revision += 1;
    let data = json!({ "message": PROCESSES_LOST });
    let event = NewEvent { at: now, ..events::of_sandbox(&next, EventKind::SandboxError, data) };
    let batch = events::batch_with_cost(&services.actors.limits.prices, &before, &next, now);
    services.stamped_store.commit(batch.event(event)).await?;
    Ok(next)
}

async fn last_seen_running(host: &Host, record: &SandboxRecord, now: TimeMs) -> TimeMs {
    let started = record.accounting.running_since().unwrap_or(now);
    let seen = host.driver().last_seen_running_ms(&record.id).await.unwrap_or_else(|error| {
        tracing::warn!(id = %record.id, %error, "could not find out when a sandbox ended");
        None
    });
    TimeMs(seen.unwrap_or(started.0)).max(started).min(now)
}
