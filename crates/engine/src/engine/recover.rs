//! Recovery at the start of the engine: makes the host agree with the records.
//!
//! Sandboxes without a record, or with one that says that they are terminated, are removed. Of the others [`rules::reconcile`] decides by
//! the lifecycle in the record and by the processes on the host; commands of the earlier daemon's clients are killed. Processes that use
//! another file than the disk are ended first: the disk was replaced, as by a restore.
//!
//! Removals of unknown sandboxes and recoveries of known ones are counted (`interruptions`). If daemons have ended during one, it is left
//! out: an unknown sandbox stays, and the processes of a known one are killed.
//!
//! The network is recovered between the removals and the rest: all recorded policies are enforced before any sandbox is
//! reachable. A sandbox that cannot be inspected or changed is logged and kept as its record says; its next request tries again.

mod corrections;

use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::time::Duration;

use api::{EventKind, Isolation, SandboxId};
use futures_util::StreamExt;
use rules::{HostRepair, ProcessState, RecordRepair, RepeatableWork, reconcile, suspects_last};
use serde_json::json;
use store::SandboxRecord;
use tokio::time::Instant;

use crate::actor::{self, ActorInit, PROCESSES_LOST};
use crate::capacity::ledger::QuotaCheck;
use crate::error::{DaemonError, EngineError};
use crate::host::guest;
use crate::object_store;
use crate::record::events;
use crate::record::interruptions::{Affected, WorkInProgress};
use crate::services::Services;
use crate::snapshots::snapshot_ids;

/// The number of sandboxes that are recovered at a time.
const CONCURRENCY: usize = 16;
/// How long the start waits for agents, one after the other, of sandboxes during whose recovery a daemon has ended.
const SUSPECTS_TIMEOUT: Duration = Duration::from_secs(10);
/// The note of a sandbox whose disk is another file than the one that its processes used. Its next event reports it.
const DISK_REPLACED: &str =
    "its disk was replaced while it had processes, as by a restore of the data directory; they were ended";
/// The note of a sandbox without a disk. Its start makes an empty one.
const DISK_MISSING: &str = "its disk is missing, as after a restore of the database alone if the sandbox was terminated since the backup, \
     or after a power failure; its files are lost, and it starts with an empty disk";

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

impl Recovered {
    fn count(&mut self, adopted: ProcessState) {
        match adopted {
            ProcessState::Running => self.running += 1,
            ProcessState::Frozen => self.paused += 1,
            ProcessState::Stored => self.hibernated += 1,
            ProcessState::Ended => self.stopped += 1,
        }
    }
}

pub async fn recover(services: &Services) -> Result<Recovered, EngineError> {
    services.interruptions.load().await?;
    let records = services.stamped_store.store().living().await?;
    let known: HashMap<SandboxId, bool> =
        records.iter().map(|record| (record.id.clone(), record.lifecycle.has_prepared_disk())).collect();
    let found = services.host.driver().list().await?;
    let orphans: Vec<SandboxId> = found.into_iter().filter(|id| !known.contains_key(id)).collect();
    let mut recovered = Recovered { orphans: orphans.len(), ..Recovered::default() };

    if !orphans.is_empty() {
        tracing::warn!(
            count = orphans.len(),
            warm_pool = services.warm_pool.state().iter().map(|pool| pool.target).sum::<u32>(),
            "removing sandboxes that the database does not have; after a crash these are warm ones, and creates that nobody was told of"
        );
    }
    // Orphans are removed first, because their ranges of user ids are free for new sandboxes.
    remove_orphans(services, orphans.clone()).await?;

    let policies: Vec<_> =
        records.iter().map(|record| (guest(record), record.config.network.egress.clone())).collect();
    services.host.network().recover(&policies).await?;
    services.detached.recover(known).await?;
    for snapshot in services.stamped_store.store().snapshots().await? {
        services.snapshots.insert(snapshot);
    }
    count_layers(services, &records).await?;
    object_store::find_remote(services).await?;

    let replaced = find_replaced_disks(services).await;
    adopt_all(services, records, &replaced, &mut recovered).await?;
    forget_the_gone(services, &orphans).await;
    Ok(recovered)
}

/// Sandboxes whose processes use another file than the disk.
async fn find_replaced_disks(services: &Services) -> HashSet<SandboxId> {
    match services.host.driver().with_replaced_disks().await {
        Ok(replaced) => replaced.into_iter().collect(),
        Err(error) => {
            tracing::error!(%error, "could not find out whether disks of sandboxes were replaced");
            HashSet::new()
        }
    }
}

/// Removes sandboxes without a record. One that daemons have ended during stays on the host.
async fn remove_orphans(services: &Services, orphans: Vec<SandboxId>) -> Result<(), EngineError> {
    let interruptions = &services.interruptions;
    let (fresh, suspects) =
        suspects_last(orphans, |id| interruptions.count(RepeatableWork::Removal, id.as_str()));
    let subjects: Vec<&str> = fresh.iter().map(SandboxId::as_str).collect();
    let work = interruptions.begin_fresh(RepeatableWork::Removal, &subjects).await?;
    futures_util::stream::iter(fresh.iter().zip(work))
        .for_each_concurrent(CONCURRENCY, async |(id, work)| {
            remove_orphan(services, id).await;
            work.end().await;
        })
        .await;
    for id in &suspects {
        match interruptions.begin(RepeatableWork::Removal, id.as_str(), None).await {
            Ok(work) => {
                remove_orphan(services, id).await;
                work.end().await;
            }
            Err(EngineError::Daemon(DaemonError::GaveUp(_))) => {
                log_failure(id, services.host.driver().kill(id).await);
                count_orphan(services, id).await;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

async fn remove_orphan(services: &Services, id: &SandboxId) {
    if let Err(error) = services.host.driver().destroy(id).await {
        tracing::error!(%id, %error, "could not remove a sandbox without a record");
        count_orphan(services, id).await;
    }
}

/// Adopts all sandboxes: concurrently those that no daemon has ended during, then the others one after the other.
async fn adopt_all(
    services: &Services,
    records: Vec<SandboxRecord>,
    replaced: &HashSet<SandboxId>,
    recovered: &mut Recovered,
) -> Result<(), EngineError> {
    let interruptions = &services.interruptions;
    let kind = RepeatableWork::Recovery;
    let (fresh, suspects) = suspects_last(records, |record| interruptions.count(kind, record.id.as_str()));
    let subjects: Vec<&str> = fresh.iter().map(|record| record.id.as_str()).collect();
    let work = interruptions.begin_fresh(kind, &subjects).await?;
    let mut adopted = futures_util::stream::iter(fresh.into_iter().zip(work))
        .map(|(record, work)| adopt(services, replaced, record, work))
        .buffer_unordered(CONCURRENCY);
    while let Some(adopted) = adopted.next().await {
        recovered.count(adopted?);
    }
    let until = Instant::now() + SUSPECTS_TIMEOUT;
    for record in suspects {
        let id = record.id.clone();
        let affected = Affected { account: &record.account, sandbox: &id };
        match interruptions.begin(kind, id.as_str(), Some(affected)).await {
            Ok(work) => {
                recovered.count(adopt(services, replaced, record, work).await?);
                interruptions.wait_for_end(kind, id.as_str(), until).await;
            }
            Err(EngineError::Daemon(DaemonError::GaveUp(_))) => {
                recovered.count(give_up(services, record).await?);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives up to take over a sandbox during which daemons have ended. Its processes are ended, and its disk and stored processes stay.
async fn give_up(services: &Services, record: SandboxRecord) -> Result<ProcessState, EngineError> {
    let id = record.id.clone();
    // Whatever else the recovery does may be what ended the daemons.
    log_failure(&id, services.host.driver().kill(&id).await);
    let record = match record.lifecycle.process_state() {
        ProcessState::Stored | ProcessState::Ended => record,
        ProcessState::Running | ProcessState::Frozen => {
            corrections::ended(services, record, PROCESSES_LOST).await?
        }
    };
    start_actor(services, record, None).await
}

/// Forgets interruptions of work on what is gone.
async fn forget_the_gone(services: &Services, orphans: &[SandboxId]) {
    let exists = |kind: RepeatableWork, subject: &str| match kind {
        RepeatableWork::Recovery | RepeatableWork::Hibernation | RepeatableWork::Wake => {
            subject.parse().is_ok_and(|id| services.registry.find(&id).is_some())
        }
        RepeatableWork::Removal => orphans.iter().any(|id| id.as_str() == subject),
        RepeatableWork::Upload => {
            subject.parse().is_ok_and(|id| services.registry.find(&id).is_some())
                || subject.parse().is_ok_and(|id| services.snapshots.contains(&id))
        }
        // What these work on has no record here, or one that only the builder reads.
        RepeatableWork::TemplateBuild
        | RepeatableWork::SnapshotRemoval
        | RepeatableWork::CopyRemoval
        | RepeatableWork::Fetch
        | RepeatableWork::Adoption => true,
    };
    services.interruptions.forget_unless(exists).await;
}

/// Counts the disk of a terminated sandbox that could not be removed.
async fn count_orphan(services: &Services, id: &SandboxId) {
    let Ok(Some(record)) = services.stamped_store.store().get(id).await else { return };
    let bytes = u64::from(record.config.resources.disk_mb) << 20;
    if let Ok(retained) = services.ledger.retain(&record.account, bytes, QuotaCheck::CountOnly) {
        retained.keep();
    }
}

/// Counts the disks of snapshots without a record that others need. The sweeper removes the rest.
async fn count_layers(services: &Services, records: &[SandboxRecord]) -> Result<(), EngineError> {
    let driver = services.host.driver();
    let snapshots = services.stamped_store.store().snapshots().await?;
    let below_sandboxes = records.iter().map(|record| (&record.account, &record.layers));
    let below_snapshots = snapshots.iter().map(|record| (&record.account, &record.layers));
    let mut owners = HashMap::new();
    for (account, layers) in below_sandboxes.chain(below_snapshots) {
        owners.extend(snapshot_ids(layers).into_iter().map(|id| (id, account)));
    }
    for id in driver.list_snapshots().await? {
        if let Some(account) = owners.get(&id).filter(|_| !services.snapshots.contains(&id)) {
            services.snapshots.recover_layer(&id, account, driver.snapshot_bytes(&id).await?);
        }
    }
    Ok(())
}

/// Brings a sandbox to the state of its record, and starts its actor. Returns where its processes are.
async fn adopt(
    services: &Services,
    replaced: &HashSet<SandboxId>,
    mut record: SandboxRecord,
    work: WorkInProgress,
) -> Result<ProcessState, EngineError> {
    let driver = services.host.driver();
    let id = record.id.clone();
    if replaced.contains(&id) {
        record = end_on_replaced_disk(services, record).await?;
    }
    settle_prepared_disk(services, &record).await;
    let inspected = services.host.process_state(&id).await;
    let is_known = inspected.is_ok();
    let found = inspected.unwrap_or_else(|error| {
        tracing::error!(%id, %error, "could not inspect a sandbox; keeping the state of its record");
        record.lifecycle.process_state()
    });
    // Never a weaker one: a start that a crash has interrupted may not have recorded its isolation on the host yet.
    let isolation = driver.isolation(&id).await;
    if let Some(isolation) = isolation.filter(|found| *found > record.config.isolation) {
        record = corrections::isolation_found(services, record, isolation).await?;
    }
    let repair = reconcile(record.lifecycle.process_state(), found);
    log_failure(&id, repair_host(services, &record, repair.host, isolation).await);
    let has_no_disk = found == ProcessState::Ended && is_disk_missing(services, &record).await;
    let record = match repair.record {
        RecordRepair::Nothing | RecordRepair::Lost if has_no_disk => {
            record_missing_disk(services, record).await?
        }
        RecordRepair::Nothing => record,
        RecordRepair::Lost => corrections::ended(services, record, PROCESSES_LOST).await?,
        RecordRepair::Hibernated => corrections::hibernated(services, record).await?,
        RecordRepair::Woken => corrections::woken(services, record).await?,
    };
    let processes = record.lifecycle.process_state();
    if is_known && processes != ProcessState::Stored {
        // Of a wake or of a cold resume whose end was not seen.
        log_failure(&id, driver.discard_memory(&id).await);
    }
    let has_network = matches!(processes, ProcessState::Running | ProcessState::Frozen);
    if has_network && !services.host.network().is_plugged(&guest(&record)).await {
        tracing::warn!(
            %id,
            account = %record.account,
            "a sandbox has lost its network link: it has no network until it is stopped and started again"
        );
    }
    start_actor(services, record, Some(work)).await
}

/// `remains` is the isolation of the container that the host has of it, or has parts of.
async fn repair_host(
    services: &Services,
    record: &SandboxRecord,
    repair: HostRepair,
    remains: Option<Isolation>,
) -> Result<(), EngineError> {
    let driver = services.host.driver();
    match repair {
        HostRepair::Freeze => Ok(driver.pause(&record.id).await?),
        HostRepair::Thaw => Ok(driver.resume(&record.id).await?),
        HostRepair::Stop => services.host.stop(&guest(record)).await,
        HostRepair::RemoveRemains if remains.is_some() => services.host.stop(&guest(record)).await,
        // Without remains of a container there is nothing to do: a restart with many hibernated sandboxes is fast.
        HostRepair::Nothing | HostRepair::RemoveRemains => Ok(()),
    }
}

/// Returns where the processes of the sandbox are.
async fn start_actor(
    services: &Services,
    record: SandboxRecord,
    recovery: Option<WorkInProgress>,
) -> Result<ProcessState, EngineError> {
    let processes = record.lifecycle.process_state();
    let mut reservation = services.ledger.adopt(record.config.resources, processes, &record.account);
    if processes == ProcessState::Stored {
        let stored = services.host.driver().disk_use(&record.id).await.map_or(0, |used| used.stored);
        reservation.set_stored_bytes(stored, QuotaCheck::CountOnly)?;
    }
    let slot = services.ledger.adopt_slot(record.slot);
    actor::spawn(&services.actors, ActorInit { record, agent: None, reservation, slot, recovery });
    Ok(processes)
}

/// Finishes or forgets a rollback that a crash has interrupted.
async fn settle_prepared_disk(services: &Services, record: &SandboxRecord) {
    let driver = services.host.driver();
    let settled = if record.lifecycle.has_prepared_disk() {
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

/// Ends processes that use another file than the disk: what they write does not reach it.
async fn end_on_replaced_disk(
    services: &Services,
    before: SandboxRecord,
) -> Result<SandboxRecord, EngineError> {
    tracing::warn!(
        id = %before.id,
        account = %before.account,
        "the disk of a sandbox was replaced while it had processes; they are ended"
    );
    log_failure(&before.id, services.host.stop(&guest(&before)).await);
    if before.lifecycle.process_state() != ProcessState::Stored {
        return corrections::ended(services, before, DISK_REPLACED).await;
    }
    // The stored processes are those of the new disk.
    let (at, data) = (services.stamped_store.now(), json!({ "message": DISK_REPLACED }));
    services.stamped_store.append(events::of_sandbox(&before, at, EventKind::SandboxError, data));
    Ok(before)
}

async fn is_disk_missing(services: &Services, record: &SandboxRecord) -> bool {
    let has_disk = services.host.driver().has_disk(&record.id).await;
    has_disk.is_ok_and(|has_disk| !has_disk)
}

/// Tells the owner, once, and the operator that a sandbox without processes has no disk. One whose processes are recorded as stored
/// keeps its record: its resume fails.
async fn record_missing_disk(
    services: &Services,
    before: SandboxRecord,
) -> Result<SandboxRecord, EngineError> {
    tracing::warn!(id = %before.id, account = %before.account, "the disk of a sandbox is missing; its files are lost");
    let is_told = before.lifecycle.note() == Some(DISK_MISSING);
    if is_told || before.lifecycle.process_state() == ProcessState::Stored {
        return Ok(before);
    }
    corrections::ended(services, before, DISK_MISSING).await
}
