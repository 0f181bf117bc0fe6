//! What a start does first: the host is brought to agree with the records.
//!
//! | Record  | On the host | Then |
//! |---|---|---|
//! | none, or terminated | anything | it is removed |
//! | running | running | taken up again; commands that the dead daemon's clients had started are ended |
//! | running | frozen  | a pause that was not committed: it goes on |
//! | paused  | frozen  | stays |
//! | paused  | running | a resume that was not committed: it is frozen again |
//! | running, paused | no process | paused on its disk, and its next event says that its processes are gone |
//!
//! Between the removals and the rest the network is brought to agree: every recorded policy is in force before anybody is let in.
//! A sandbox that cannot be looked at or mended is reported and kept as its record says; its next request tries again.

use std::collections::HashSet;
use std::sync::Arc;

use api::{SandboxId, SandboxState};
use driver::Presence;
use futures_util::StreamExt;
use rules::{Hold, TimeMs};
use store::SandboxRecord;

use crate::actor::{self, ActorInit, PROCESSES_LOST};
use crate::error::EngineError;
use crate::network::guest;
use crate::shared::Shared;

/// So many are looked at at once.
const AT_ONCE: usize = 16;

/// What a start found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    pub running: usize,
    pub paused: usize,
    /// Paused, and without the processes they had.
    pub stopped: usize,
    /// Removed: things on the host that belong to no living sandbox.
    pub orphans: usize,
}

pub async fn recover(shared: &Arc<Shared>) -> Result<Recovered, EngineError> {
    let records = shared.store.living().await?;
    let known: HashSet<SandboxId> = records.iter().map(|record| record.id.clone()).collect();
    let found = shared.driver.list().await?;
    let orphans: Vec<SandboxId> = found.into_iter().filter(|id| !known.contains(id)).collect();
    let mut recovered = Recovered { orphans: orphans.len(), ..Recovered::default() };

    // Orphans go first: their user ids are about to be given out again.
    futures_util::stream::iter(orphans)
        .for_each_concurrent(AT_ONCE, async |id| {
            if let Err(error) = shared.driver.destroy(&id).await {
                tracing::error!(%id, %error, "could not remove an orphan");
            }
        })
        .await;

    // What belonged to orphans goes now, and every policy is in force again before anything else happens.
    let living: Vec<_> =
        records.iter().map(|record| (guest(record), record.config.network.egress.clone())).collect();
    shared.network.recover(&living).await?;

    let (shared_by_thread, id_of) = (Arc::clone(shared), known);
    let reading = tokio::task::spawn_blocking(move || shared_by_thread.detached.recover(&id_of));
    reading.await.map_err(|_| EngineError::TaskLost)??;

    let mut taken =
        futures_util::stream::iter(records).map(|record| take_up(shared, record)).buffer_unordered(AT_ONCE);
    while let Some(hold) = taken.next().await {
        match hold? {
            Hold::Running => recovered.running += 1,
            Hold::Paused => recovered.paused += 1,
            Hold::Stopped => recovered.stopped += 1,
        }
    }
    Ok(recovered)
}

async fn take_up(shared: &Arc<Shared>, mut record: SandboxRecord) -> Result<Hold, EngineError> {
    let id = record.id.clone();
    let presence = match shared.driver.inspect(&id).await {
        Ok(presence) => presence,
        Err(error) => {
            tracing::error!(%id, %error, "could not look at a sandbox; keeping what its record says");
            if record.state == SandboxState::Paused { Presence::Paused } else { Presence::Running }
        }
    };
    let hold = match (record.state, presence) {
        // It had lost its processes, and the daemon died while starting it again.
        (SandboxState::Paused, Presence::Paused | Presence::Running) if record.note.is_some() => {
            stop(shared, &record).await;
            Hold::Stopped
        }
        (SandboxState::Paused, Presence::Paused) => Hold::Paused,
        (SandboxState::Paused, Presence::Running) => {
            mend(&id, shared.driver.pause(&id).await);
            Hold::Paused
        }
        (_, Presence::Paused) => {
            mend(&id, shared.driver.resume(&id).await);
            Hold::Running
        }
        (_, Presence::Running) => Hold::Running,
        (_, Presence::Stopped | Presence::Absent) => {
            record = stopped(shared, record).await?;
            Hold::Stopped
        }
    };
    if hold != Hold::Stopped && !shared.network.is_plugged(&guest(&record)) {
        tracing::warn!(%id, "a sandbox has lost its link: nothing gets in or out until its processes are started anew");
    }
    let reservation = shared.ledger.adopt(record.config.resources, hold);
    let slot = shared.ledger.adopt_slot(record.slot);
    actor::spawn(shared, ActorInit { record, agent: None, reservation, slot });
    Ok(hold)
}

/// Clears away all but the disk.
async fn stop(shared: &Shared, record: &SandboxRecord) {
    mend(&record.id, shared.driver.stop(&record.id).await);
    mend(&record.id, shared.network.unplug(&guest(record)).await);
}

fn mend(id: &SandboxId, result: Result<(), impl std::fmt::Display>) {
    if let Err(error) = result {
        tracing::error!(%id, %error, "could not bring a sandbox to the state of its record");
    }
}

/// Its processes are gone, with the host or by themselves. Said once: a record that says so already stays as it is.
async fn stopped(shared: &Shared, record: SandboxRecord) -> Result<SandboxRecord, EngineError> {
    // Half of a runtime's container may be left.
    stop(shared, &record).await;
    if record.state == SandboxState::Paused && record.note.is_some() {
        return Ok(record);
    }
    let now = shared.clock.now();
    let before = record;
    let mut next = before.clone();
    if next.state != SandboxState::Paused {
        // The time since then it did not run: the host was off, or nobody was there to see it end.
        let ended = last_sign(shared, &next, now).await;
        next.state = SandboxState::Paused;
        next.paused_at = Some(ended);
        next.accounting.paused(ended);
    }
    next.note = Some(PROCESSES_LOST.to_owned());
    next.revision += 1;
    let data = serde_json::json!({ "message": PROCESSES_LOST });
    let event = store::NewEvent { at: now, ..actor::event(&next, "sandbox.error", data) };
    let batch = actor::with_cost(&shared.settings.prices, &before, &next, now);
    shared.store.commit(batch.event(event)).await?;
    Ok(next)
}

/// When a sandbox that nobody watched was last seen to run.
async fn last_sign(shared: &Shared, record: &SandboxRecord, now: TimeMs) -> TimeMs {
    let began = record.accounting.running_since().unwrap_or(now);
    let seen = shared.driver.last_seen_running_ms(&record.id).await.unwrap_or_else(|error| {
        tracing::warn!(id = %record.id, %error, "nothing tells when a sandbox ended");
        None
    });
    TimeMs(seen.unwrap_or(began.0)).max(began).min(now)
}
