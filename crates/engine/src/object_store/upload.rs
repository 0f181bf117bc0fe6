//! Stores copies of snapshots in the background, removes those of deleted snapshots, and removes unused snapshots from this host.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SnapshotId};
use archive::{ArchiveError, SourceFile, SourcePart, SourceSnapshot};
use driver::SnapshotScope;
use serde_json::json;
use store::{Batch, NewEvent, SnapshotRecord};

use super::fetch::{executions_part, processes_part};
use crate::error::EngineError;
use crate::services::Services;
use crate::snapshots::{Copies, Document, snapshot_ids};

/// Between rounds without new snapshots: for uploads that failed on this host, and for snapshots that become unused.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Does what there is to do, and again whenever a snapshot was taken or deleted.
pub fn start(services: &Arc<Services>) {
    let Some(copies) = services.copies.clone() else { return };
    let worker = Worker { services: Arc::clone(services), copies };
    services.tasks.spawn_until_stopped(async move {
        let mut is_reconciled = false;
        let mut retry = FIRST_RETRY;
        loop {
            let done = worker.round(&mut is_reconciled).await;
            if let Err(error) = done {
                worker.services.counters.snapshot_uploads_failed.add(1);
                tracing::warn!(error = error_text(&error), "copies of snapshots wait for the object store");
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(LAST_RETRY);
                continue;
            }
            retry = FIRST_RETRY;
            let _ = tokio::time::timeout(INTERVAL, worker.copies.work.notified()).await;
        }
    });
}

fn error_text(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| {
        let source = source.to_string();
        if text.contains(&source) { text } else { format!("{text}: {source}") }
    })
}

struct Worker {
    services: Arc<Services>,
    copies: Arc<Copies>,
}

impl Worker {
    async fn round(&self, is_reconciled: &mut bool) -> Result<(), EngineError> {
        let archive = &self.copies.archive;
        if !*is_reconciled {
            for id in archive.reconcile().await?.lost {
                tracing::warn!(id, "the object store has lost a part of a snapshot");
            }
            *is_reconciled = true;
        }
        for id in archive.ids() {
            let is_known = id.parse().is_ok_and(|id| self.services.snapshots.contains(&id));
            if !is_known {
                archive.remove(&id).await?;
            }
        }
        for record in self.services.snapshots.requested() {
            if archive.has(record.id.as_str()) {
                continue;
            }
            match self.upload(&record).await {
                Ok(()) | Err(EngineError::Archive(ArchiveError::Unwanted)) => {}
                Err(EngineError::Archive(error)) if error.is_transient() => return Err(error.into()),
                // Of this snapshot only.
                Err(error) => {
                    self.services.counters.snapshot_uploads_failed.add(1);
                    tracing::error!(id = %record.id, error = error_text(&error), "could not copy a snapshot to the object store");
                }
            }
        }
        archive.remove_superfluous().await?;
        self.evict().await
    }

    async fn upload(&self, record: &SnapshotRecord) -> Result<(), EngineError> {
        let Services { snapshots, stamped_store, counters, .. } = &*self.services;
        let _hold = snapshots.hold(&record.layers, Some(&record.id));
        let source = self.source(record).await?;
        let sent = self.copies.archive.upload(&source, &|| snapshots.contains(&record.id)).await?;
        counters.snapshots_stored.add(1);
        counters.snapshot_bytes_sent.add(sent.bytes);
        let event = NewEvent {
            sandbox: record.sandbox.clone(),
            account: record.account.clone(),
            run: String::new(),
            at: stamped_store.now(),
            kind: EventKind::SnapshotStored,
            data: json!({ "snapshotId": record.id, "sentBytes": sent.bytes }),
            once: None,
        };
        Ok(stamped_store.commit(Batch::new().event(event)).await?)
    }

    /// The files of a snapshot and of the disks below it.
    async fn source(&self, record: &SnapshotRecord) -> Result<SourceSnapshot, EngineError> {
        let mut parts = Vec::new();
        for id in snapshot_ids(&record.layers) {
            parts.push(self.part(id.to_string(), &id, SnapshotScope::Disk).await?);
        }
        if record.memory {
            let name = processes_part(&record.id);
            parts.push(self.part(name, &record.id, SnapshotScope::Processes).await?);
            let files = self.services.detached.stored_files(&record.id).await?;
            let files = files.into_iter().map(|(name, path)| SourceFile { name, path });
            parts.push(SourcePart { name: executions_part(&record.id), files: files.collect() });
        }
        Ok(SourceSnapshot {
            id: record.id.to_string(),
            account: record.account.clone(),
            // Serializing text and numbers cannot fail.
            record: serde_json::to_value(Document::of(record)).unwrap_or_default(),
            parts,
        })
    }

    /// A disk that is not on this host is stored already, or was lost with it.
    async fn part(
        &self,
        name: String,
        id: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<SourcePart, EngineError> {
        let files = self.services.host.driver().snapshot_files(id, scope).await?;
        if files.is_empty() && !self.copies.is_remote(id) {
            return Err(EngineError::backend(format!("this host has lost files of {id}")));
        }
        let files = files.into_iter().map(|file| SourceFile { name: file.name, path: file.path });
        Ok(SourcePart { name, files: files.collect() })
    }

    /// Removes disks from this host that nothing has used for long and that the object store has.
    async fn evict(&self) -> Result<(), EngineError> {
        let Services { snapshots, registry, host, detached, stamped_store, .. } = &*self.services;
        if self.copies.local_for_ms == 0 {
            return Ok(());
        }
        let _removal = self.copies.removal.write().await;
        let before = stamped_store.now().before(self.copies.local_for_ms);
        let is_stored = |record: &SnapshotRecord| {
            self.copies.archive.has(record.id.as_str()) && record.created_at <= before
        };
        let removable = snapshots.needed_only_by(is_stored);
        // Read after the holds: a create commits its record before it drops its hold.
        let records = registry.records();
        let layers: HashSet<SnapshotId> =
            records.iter().flat_map(|record| snapshot_ids(&record.layers)).collect();
        for id in host.driver().list_snapshots().await? {
            let is_unused = self.copies.used_at(&id).is_none_or(|used| used <= before);
            if !removable.contains(&id) || layers.contains(&id) || !is_unused {
                continue;
            }
            tracing::debug!(%id, "removing a snapshot from this host that the object store has");
            // First: a crash in between leaves a snapshot that is fetched although its files are here.
            self.copies.set_remote(&id, true);
            detached.remove_stored(&id).await?;
            host.driver().remove_snapshot(&id).await?;
        }
        Ok(())
    }
}
