//! The disk that a rollback has prepared beside that of the sandbox, until it replaces it.

use std::path::Path;

use driver::snapshot_of_layer;
use rules::BaseLayers;

use super::Actor;
use super::end::wait_for_executions;
use crate::capacity::ledger::QuotaCheck;
use crate::detached::AgentAvailability;
use crate::error::{EngineError, ExecutionError};

/// Counts the copy of a snapshot that is beside the disk until it replaces it.
pub(super) fn admit_prepared_disk(actor: &mut Actor, base: &BaseLayers<String>) -> Result<(), EngineError> {
    let copied = base.disk_from.as_ref().and_then(|layer| snapshot_of_layer(Path::new(layer)));
    let bytes = copied.map_or(0, |id| actor.context.snapshots.bytes_of(&id));
    actor.prepared = actor.reservation.retain(bytes, QuotaCheck::Enforced)?;
    Ok(())
}

/// Makes the prepared disk of an earlier rollback the disk, if there is one. Until then nothing may read or replace the disk.
pub(super) async fn settle_disk(actor: &mut Actor) -> Result<(), EngineError> {
    if !actor.record.lifecycle.has_prepared_disk() {
        return Ok(());
    }
    adopt_prepared(actor).await?;
    let next = actor.next_record(actor.record.lifecycle.with_own_disk());
    let now = actor.context.stamped_store.now();
    Ok(actor.commit_events(next, Vec::new(), now).await?)
}

/// Makes what a rollback has prepared the sandbox's own: the disk, and processes with their executions. Succeeds if that was done
/// before.
pub(super) async fn adopt_prepared(actor: &mut Actor) -> Result<(), EngineError> {
    actor.context.host.driver().adopt_disk(actor.id()).await?;
    actor.prepared = None;
    if !actor.context.detached.has_staged(actor.id()) {
        return Ok(());
    }
    // Those of the old processes have ended. The agent has the same operation numbers for those of the snapshot.
    actor.executions.set_agent(AgentAvailability::ProcessesGone);
    if !wait_for_executions(actor).await {
        return Err(ExecutionError::Log(std::io::ErrorKind::TimedOut.into()).into());
    }
    actor.context.detached.adopt_staged(actor.id()).await?;
    actor.publish_agent();
    actor.executions.adopt_recovered(&actor.status, |kind| actor.workload.adopt(kind));
    Ok(())
}

/// Removes what a failed rollback has prepared.
pub(super) async fn discard_prepared(actor: &mut Actor) {
    match actor.context.host.driver().discard_prepared_disk(actor.id()).await {
        Ok(()) => actor.prepared = None,
        Err(error) => {
            tracing::warn!(id = %actor.id(), %error, "could not remove the disk of a failed rollback");
        }
    }
    if let Err(error) = actor.context.detached.discard_staged(actor.id()).await {
        tracing::warn!(id = %actor.id(), %error, "could not remove the executions of a failed rollback");
    }
}
