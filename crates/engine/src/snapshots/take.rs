//! Takes a snapshot: copies the disk while the sandbox runs, lets its actor capture the rest, and commits the record.

use std::fs;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SnapshotId};
use driver::{DiskUse, SnapshotDisk, SnapshotScope};
use rules::{Operation, SnapshotRequest, decide};
use serde_json::json;
use store::{Batch, SandboxRecord, SnapshotRecord, SnapshotVisibility};

use super::{PendingShare, SnapshotKind, SnapshotRegistry};
use crate::capacity::host_watch::{HostWatch, check_room};
use crate::capacity::ledger::{Ledger, QuotaCheck};
use crate::counters::Counters;
use crate::detached::ExecutionRegistry;
use crate::error::{DaemonError, EngineError, SandboxError};
use crate::host::Host;
use crate::record::events;
use crate::record::idempotency::PendingIdempotencyRecord;
use crate::record::ids::new_snapshot_id;
use crate::record::stamped_store::StampedStore;
use crate::registry::mailbox::{ActorHandle, ActorRequest, CapturedDisk};
use crate::tasks::Tasks;
use crate::template::hold::SnapshotHold;

/// The idempotency record of a snapshot.
pub type PendingSnapshot = PendingIdempotencyRecord<SnapshotRecord>;

/// What takes snapshots.
pub struct SnapshotServices {
    pub host: Arc<Host>,
    pub stamped_store: StampedStore,
    pub snapshots: Arc<SnapshotRegistry>,
    pub detached: Arc<ExecutionRegistry>,
    pub ledger: Arc<Ledger>,
    pub counters: Arc<Counters>,
    pub tasks: Tasks,
    /// The configuration of the host watcher, with its last sample.
    pub host_watch: Option<HostWatch>,
}

/// The disk of a sandbox, copied and held.
pub struct CopiedDisk {
    pub id: SnapshotId,
    pub disk: SnapshotDisk,
    pub scope: SnapshotScope,
    /// The record of the sandbox at the moment of the copy.
    pub sandbox: Arc<SandboxRecord>,
    pub frozen: Duration,
    /// Kept until the registry or the records of sandboxes refer to the disk.
    pub _hold: SnapshotHold,
}

/// Takes a snapshot of a sandbox.
pub async fn take(
    services: &SnapshotServices,
    actor: &ActorHandle,
    request: SnapshotRequest,
    idempotency: Option<PendingSnapshot>,
) -> Result<Arc<SnapshotRecord>, EngineError> {
    let SnapshotServices { snapshots, stamped_store, counters, .. } = services;
    let account = actor.status.borrow().record.account.clone();
    let kind = SnapshotKind::Requested;
    let copied =
        copy_within_quotas(services, actor, (kind, QuotaCheck::Enforced), scope_of(request.memory)).await;
    let (copied, _share) = copied.inspect_err(|error| error.count_refusal(counters))?;
    let record = new_record(&copied, request, stamped_store.now());
    let data = json!({
        "snapshotId": record.id, "name": record.name, "sizeBytes": record.bytes,
        "memory": record.memory, "frozenMs": milliseconds(copied.frozen),
    });
    let event = events::of_snapshot(&record, record.created_at, EventKind::SnapshotCreated, data);
    let mut batch = Batch::new().put_snapshot(record.clone()).event(event);
    if let Some(idempotency) = idempotency {
        batch = batch.idempotency_record(idempotency.complete(&account, record.created_at, &record));
    }
    stamped_store.commit(batch).await?;
    counters.snapshots_taken.add(1);
    // Registered before the hold is dropped.
    let record = snapshots.insert(record);
    snapshots.request_sync();
    Ok(record)
}

/// Takes an internal snapshot.
pub async fn take_internal(
    services: &SnapshotServices,
    actor: &ActorHandle,
    origin_key: String,
    scope: SnapshotScope,
) -> Result<Arc<SnapshotRecord>, EngineError> {
    let kind = (SnapshotKind::Internal, QuotaCheck::Enforced);
    let (copied, _share) = copy_within_quotas(services, actor, kind, scope).await?;
    let record = new_record(&copied, SnapshotRequest::default(), services.stamped_store.now());
    let record = SnapshotRecord { visibility: SnapshotVisibility::Internal { origin_key }, ..record };
    services.stamped_store.commit(Batch::new().put_snapshot(record.clone())).await?;
    // Registered before the hold is dropped.
    Ok(services.snapshots.insert(record))
}

async fn copy_within_quotas(
    services: &SnapshotServices,
    actor: &ActorHandle,
    (kind, check): (SnapshotKind, QuotaCheck),
    scope: SnapshotScope,
) -> Result<(CopiedDisk, PendingShare), EngineError> {
    let SnapshotServices { snapshots, .. } = services;
    let id = new_snapshot_id();
    let account = actor.status.borrow().record.account.clone();
    let bytes = unless_ended(actor, used_bytes(services, actor, scope).await)?;
    let share = snapshots.begin(&id, &account, kind, (bytes, check)).await?;
    let copied = copy(services, actor, id, scope).await?;
    // It may have grown since.
    share.resize(copied.disk.bytes, check)?;
    Ok((copied, share))
}

/// The error of a step that finds no disk because the sandbox has been terminated meanwhile says so.
fn unless_ended<T>(actor: &ActorHandle, step: Result<T, EngineError>) -> Result<T, EngineError> {
    if step.is_err() {
        decide(actor.status.borrow().state(), Operation::Snapshot)?;
    }
    step
}

/// What a request with or without `memory` copies.
pub fn scope_of(memory: bool) -> SnapshotScope {
    if memory { SnapshotScope::Processes } else { SnapshotScope::Disk }
}

/// About the bytes that a snapshot takes.
async fn used_bytes(
    services: &SnapshotServices,
    actor: &ActorHandle,
    scope: SnapshotScope,
) -> Result<u64, EngineError> {
    let id = actor.status.borrow().record.id.clone();
    let driver = services.host.driver();
    let DiskUse { allocated, stored, .. } = driver.disk_use(&id).await?;
    let memory = match scope {
        SnapshotScope::Disk => 0,
        SnapshotScope::Processes => driver.resource_use(&id).await?.map_or(stored, |used| used.memory),
    };
    Ok(allocated.saturating_add(memory))
}

/// Rounded up.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
}

/// Copies the disk of a sandbox. What a failed copy leaves is removed by the sweeper.
async fn copy(
    services: &SnapshotServices,
    actor: &ActorHandle,
    id: SnapshotId,
    scope: SnapshotScope,
) -> Result<CopiedDisk, EngineError> {
    let SnapshotServices { snapshots, host, tasks, .. } = services;
    let account = actor.status.borrow().record.account.clone();
    let permit = tasks.until_stopped(snapshots.copy_permit(&account)).await;
    let _permit = permit.ok_or(DaemonError::Stopping)?;
    let status = actor.status.borrow().clone();
    decide(status.state(), Operation::Snapshot)?;
    if host.has_read_only_disk(&status.record.id).await {
        return Err(SandboxError::ReadOnlyDisk.into());
    }
    let bytes = unless_ended(actor, used_bytes(services, actor, scope).await)?;
    check_room(&services.ledger, services.host_watch.as_ref(), bytes)?;
    let hold = snapshots.hold(&status.record.layers, Some(&id));
    let begun = host.driver().copy_disk(&status.record.id, &id).await;
    let copy = unless_ended(actor, begun.map_err(EngineError::from))?;
    let snapshot = id.clone();
    let captured = actor.request(|reply| ActorRequest::Capture { copy, snapshot, scope, reply }).await?;
    let CapturedDisk { copy, record, frozen } = captured;
    // A rollback may have changed its layers since the copy began.
    let hold_now = snapshots.hold(&record.layers, Some(&id));
    drop(hold);
    let mut disk = copy.finish().await?;
    if scope == SnapshotScope::Processes {
        disk.bytes = disk.bytes.saturating_add(executions_bytes(services, &id).await?);
    }
    Ok(CopiedDisk { id, disk, scope, sandbox: record, frozen, _hold: hold_now })
}

/// Bytes of the executions that are stored with a snapshot.
async fn executions_bytes(services: &SnapshotServices, id: &SnapshotId) -> Result<u64, EngineError> {
    let files = services.detached.stored_files(id).await?;
    let bytes = move || files.iter().map(|(_, path)| Ok(fs::metadata(path)?.len())).sum::<io::Result<u64>>();
    base::blocking(move || Ok(bytes()?)).await
}

fn new_record(copied: &CopiedDisk, request: SnapshotRequest, now: rules::TimeMs) -> SnapshotRecord {
    let SandboxRecord { id, account, config, image_digest, image_env, layers, .. } = &*copied.sandbox;
    let own = copied.disk.layer.to_string_lossy().into_owned();
    SnapshotRecord {
        id: copied.id.clone(),
        account: account.clone(),
        sandbox: id.clone(),
        name: request.name,
        image: config.image.clone(),
        image_digest: image_digest.clone(),
        image_env: image_env.clone(),
        workdir: Some(config.workdir.clone()),
        isolation: config.isolation,
        layers: [std::slice::from_ref(&own), layers].concat(),
        resources: config.resources,
        memory: copied.scope == SnapshotScope::Processes,
        bytes: copied.disk.bytes,
        metadata: request.metadata,
        created_at: now,
        visibility: SnapshotVisibility::Account,
    }
}

/// A copy without a record, and its share of the quotas. Keep it until a record refers to the copy.
pub struct HiddenCopy {
    pub record: SnapshotRecord,
    pub copied: CopiedDisk,
    pub _share: PendingShare,
}

/// Makes a copy for the sandboxes of a fork, or for the object store.
pub async fn hidden_copy(
    services: &SnapshotServices,
    actor: &ActorHandle,
    scope: SnapshotScope,
    check: QuotaCheck,
) -> Result<HiddenCopy, EngineError> {
    let kind = (SnapshotKind::Hidden, check);
    let (copied, share) = copy_within_quotas(services, actor, kind, scope).await?;
    let record = new_record(&copied, SnapshotRequest::default(), services.stamped_store.now());
    Ok(HiddenCopy { record, copied, _share: share })
}
