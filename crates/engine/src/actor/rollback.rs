//! Rollback: the processes of a sandbox end, and it starts again on the disk of a snapshot, or continues the processes of the snapshot.
//!
//! ```text
//! prepare the new disk -> end the processes -> commit (paused, with the layers of the snapshot) -> replace the disk
//!   -> start, or wake -> commit
//! ```
//!
//! Before the first commit a failure or a crash leaves the old disk, afterwards the new one, never a mixture. A crash before the
//! processes end changes nothing; after it the sandbox is paused.

use std::sync::Arc;

use api::EventKind;
use driver::SandboxSpec;
use rules::{BaseLayers, Operation, PausedProcesses, ProcessState, base_layers, decide};
use serde_json::json;
use store::SnapshotRecord;

use super::end::end_processes;
use super::loss::processes_lost;
use super::prepared_disk::{admit_prepared_disk, discard_prepared, settle_disk};
use super::resume::{lower_reservation, raise_reservation, try_resume};
use super::stored_processes::count_stored_processes;
use super::{Actor, LinkedProcesses, spec_of};
use crate::error::EngineError;
use crate::record::status::Status;
use crate::snapshots::split_layers;

pub(super) async fn rollback(
    actor: &mut Actor,
    snapshot: &Arc<SnapshotRecord>,
) -> Result<Status, EngineError> {
    decide(actor.record.state(), Operation::Rollback)?;
    settle_disk(actor).await?;
    raise_reservation(actor).await?;
    let (snapshots, image) = split_layers(&snapshot.layers);
    let base = base_layers(snapshots, image);
    let replaced = match admit_prepared_disk(actor, &base) {
        Ok(()) => replace_disk(actor, snapshot, base).await,
        Err(refused) => Err(refused),
    };
    if let Err(error) = replaced {
        lower_reservation(actor);
        if !actor.record.lifecycle.has_prepared_disk() {
            discard_prepared(actor).await;
        }
        return Err(error);
    }
    // What the sandbox needs to run stays reserved until it runs.
    if let Err(error) = try_resume(actor).await {
        lower_reservation(actor);
        return Err(error);
    }
    actor.context.counters.rolled_back.add(1);
    Ok(actor.status.borrow().clone())
}

/// Ends the processes and replaces the disk.
async fn replace_disk(
    actor: &mut Actor,
    snapshot: &SnapshotRecord,
    base: BaseLayers<String>,
) -> Result<(), EngineError> {
    let spec = SandboxSpec {
        layers: base.layers.iter().map(Into::into).collect(),
        disk_from: base.disk_from.map(Into::into),
        processes_from: snapshot.memory.then(|| snapshot.id.clone()),
        ..actor.spec.clone()
    };
    actor.context.host.driver().prepare_disk(&spec).await?;
    if snapshot.memory {
        let running_ms = actor.record.lifecycle.running_ms(actor.context.stamped_store.now());
        actor.context.detached.stage(&snapshot.id, actor.id(), running_ms).await?;
    }
    let is_hibernated = actor.processes.state() == ProcessState::Stored;
    if !is_hibernated {
        end_processes(actor).await?;
    }
    if let Err(error) = commit_rollback(actor, snapshot, base.layers).await {
        if !is_hibernated {
            processes_lost(actor).await?;
        }
        return Err(error);
    }
    actor.processes = LinkedProcesses::of(&actor.record.lifecycle, None);
    actor.publish_agent();
    actor.spec = spec_of(&actor.record);
    // The old layers may be the last trace of a deleted snapshot.
    actor.context.snapshots.request_sweep();
    let settled = settle_disk(actor).await;
    count_stored_processes(actor).await;
    settled
}

/// From here on the prepared disk is the sandbox's disk.
async fn commit_rollback(
    actor: &mut Actor,
    snapshot: &SnapshotRecord,
    layers: Vec<String>,
) -> Result<(), EngineError> {
    let now = actor.context.stamped_store.now();
    let processes = if snapshot.memory {
        let note = format!("rolled back to {}; it has the processes of then", snapshot.id);
        PausedProcesses::Stored { at: now, note: Some(note) }
    } else {
        PausedProcesses::Ended { note: format!("rolled back to {}; its processes ended", snapshot.id) }
    };
    let mut next = actor.next_record(actor.record.lifecycle.rolled_back(now, processes));
    next.layers = layers;
    next.image_env.clone_from(&snapshot.image_env);
    let data = json!({ "snapshotId": snapshot.id });
    Ok(actor.commit(next, EventKind::SandboxRolledBack, data, now).await?)
}
