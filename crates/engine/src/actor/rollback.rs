//! Rolls a sandbox back: its processes end, and it starts again on the disk of a snapshot, or continues the processes of the snapshot.
//!
//! ```text
//! prepare the new disk -> end the processes -> commit (paused, with the layers of the snapshot) -> replace the disk
//!   -> start, or wake -> commit
//! ```
//!
//! Before the first commit a failure or a crash leaves the old disk, afterwards the new one, never a mixture. A crash before the
//! processes end changes nothing; after it the sandbox is paused.

use std::path::Path;
use std::sync::Arc;

use api::EventKind;
use driver::{SandboxSpec, snapshot_of_layer};
use rules::{BaseLayers, Hold, Operation, PausedProcesses, base_layers, decide};
use serde_json::json;
use store::SnapshotRecord;

use super::{Actor, ProcessState, spec_of};
use crate::capacity::ledger::QuotaCheck;
use crate::detached::AgentAvailability;
use crate::error::{EngineError, ExecutionError};
use crate::record::status::Status;
use crate::snapshots::split_layers;

impl Actor {
    pub(super) async fn rollback(&mut self, snapshot: &Arc<SnapshotRecord>) -> Result<Status, EngineError> {
        decide(self.record.state(), Operation::Rollback)?;
        self.settle_disk().await?;
        let before = self.reservation.hold();
        self.raise_reservation().await?;
        let (snapshots, image) = split_layers(&snapshot.layers);
        let base = base_layers(snapshots, image);
        let replaced = match self.admit_prepared_disk(&base) {
            Ok(()) => self.replace_disk(snapshot, base).await,
            Err(refused) => Err(refused),
        };
        if let Err(error) = replaced {
            let is_stopped = matches!(self.processes, ProcessState::Stopped | ProcessState::Hibernated);
            self.reservation.lower(if is_stopped { Hold::Stopped } else { before });
            if !self.record.lifecycle.has_prepared_disk() {
                self.discard_prepared().await;
            }
            return Err(error);
        }
        // What the sandbox needs to run stays reserved until it runs.
        if let Err(error) = self.try_resume().await {
            self.reservation.lower(Hold::Stopped);
            return Err(error);
        }
        self.context.counters.rolled_back.add(1);
        Ok(self.status.borrow().clone())
    }

    /// Counts the copy of a snapshot that is beside the disk until it replaces it.
    fn admit_prepared_disk(&mut self, base: &BaseLayers<String>) -> Result<(), EngineError> {
        let copied = base.disk_from.as_ref().and_then(|layer| snapshot_of_layer(Path::new(layer)));
        let bytes = copied.map_or(0, |id| self.context.snapshots.bytes_of(&id));
        self.prepared = self.reservation.retain(bytes, QuotaCheck::Enforced)?;
        Ok(())
    }

    /// Ends the processes and replaces the disk.
    async fn replace_disk(
        &mut self,
        snapshot: &SnapshotRecord,
        base: BaseLayers<String>,
    ) -> Result<(), EngineError> {
        let spec = SandboxSpec {
            layers: base.layers.iter().map(Into::into).collect(),
            disk_from: base.disk_from.map(Into::into),
            processes_from: snapshot.memory.then(|| snapshot.id.clone()),
            ..self.spec.clone()
        };
        self.context.host.driver().prepare_disk(&spec).await?;
        if snapshot.memory {
            let running_ms = self.record.lifecycle.running_ms(self.context.stamped_store.now());
            self.context.detached.stage(&snapshot.id, self.id(), running_ms).await?;
        }
        let is_hibernated = matches!(self.processes, ProcessState::Hibernated);
        if !is_hibernated {
            self.end_processes().await?;
        }
        if let Err(error) = self.commit_rollback(snapshot, base.layers).await {
            if !is_hibernated {
                self.processes_lost().await?;
            }
            return Err(error);
        }
        self.processes = if snapshot.memory { ProcessState::Hibernated } else { ProcessState::Stopped };
        self.publish_agent();
        self.spec = spec_of(&self.record);
        // The old layers may be the last trace of a deleted snapshot.
        self.context.snapshots.request_sweep();
        let settled = self.settle_disk().await;
        self.count_stored_processes().await;
        settled
    }

    /// Makes the prepared disk of an earlier rollback the disk, if there is one. Until then nothing may read or replace the disk.
    pub(super) async fn settle_disk(&mut self) -> Result<(), EngineError> {
        if !self.record.lifecycle.has_prepared_disk() {
            return Ok(());
        }
        self.adopt_prepared().await?;
        let mut next = (*self.record).clone();
        next.lifecycle = next.lifecycle.with_own_disk();
        let now = self.context.stamped_store.now();
        Ok(self.commit_events(next, Vec::new(), now).await?)
    }

    /// Makes what a rollback has prepared the sandbox's own: the disk, and processes with their executions. Succeeds if that was done
    /// before.
    pub(super) async fn adopt_prepared(&mut self) -> Result<(), EngineError> {
        self.context.host.driver().adopt_disk(self.id()).await?;
        self.prepared = None;
        if !self.context.detached.has_staged(self.id()) {
            return Ok(());
        }
        // Those of the old processes have ended. The agent has the same operation numbers for those of the snapshot.
        self.executions.set_agent(AgentAvailability::ProcessesGone);
        if !self.wait_for_executions().await {
            return Err(ExecutionError::Log(std::io::ErrorKind::TimedOut.into()).into());
        }
        self.context.detached.adopt_staged(self.id()).await?;
        self.publish_agent();
        self.executions.adopt_recovered(&self.status, |kind| self.workload.adopt(kind));
        Ok(())
    }

    /// Removes what a failed rollback has prepared.
    async fn discard_prepared(&mut self) {
        match self.context.host.driver().discard_prepared_disk(self.id()).await {
            Ok(()) => self.prepared = None,
            Err(error) => {
                tracing::warn!(id = %self.id(), %error, "could not remove the disk of a failed rollback");
            }
        }
        if let Err(error) = self.context.detached.discard_staged(self.id()).await {
            tracing::warn!(id = %self.id(), %error, "could not remove the executions of a failed rollback");
        }
    }

    /// From here on the prepared disk is the sandbox's disk.
    async fn commit_rollback(
        &mut self,
        snapshot: &SnapshotRecord,
        layers: Vec<String>,
    ) -> Result<(), EngineError> {
        let now = self.context.stamped_store.now();
        let mut next = (*self.record).clone();
        next.layers = layers;
        next.image_env.clone_from(&snapshot.image_env);
        let processes = if snapshot.memory {
            let note = format!("rolled back to {}; it has the processes of then", snapshot.id);
            PausedProcesses::Stored { at: now, note: Some(note) }
        } else {
            PausedProcesses::Ended { note: format!("rolled back to {}; its processes ended", snapshot.id) }
        };
        next.lifecycle = next.lifecycle.rolled_back(now, processes);
        let data = json!({ "snapshotId": snapshot.id });
        Ok(self.commit(next, EventKind::SandboxRolledBack, data, now).await?)
    }
}
