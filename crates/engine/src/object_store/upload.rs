//! Stores copies of snapshots and of hibernated sandboxes in the background, and removes those that are not wanted any more.

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

/// Does what there is to do, and again whenever something was taken, deleted, hibernated or woken.
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
                tracing::warn!(error = error_text(&error), "copies wait for the object store");
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(LAST_RETRY);
                continue;
            }
            retry = FIRST_RETRY;
            let requested = worker.services.snapshots.store_requested();
            let _ = tokio::time::timeout(INTERVAL, requested).await;
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

/// The task that does so.
pub(super) struct Worker {
    pub(super) services: Arc<Services>,
    pub(super) copies: Arc<Copies>,
}

impl Worker {
    async fn round(&self, is_reconciled: &mut bool) -> Result<(), EngineError> {
        let archive = &self.copies.archive;
        if !*is_reconciled {
            for id in archive.reconcile().await?.lost {
                tracing::warn!(id, "the object store has lost a part of a snapshot");
            }
            self.read_hibernations().await?;
            self.give_up_adopted().await?;
            *is_reconciled = true;
        }
        if self.copies.has_handed_over() {
            self.give_up_adopted().await?;
        }
        for id in archive.ids() {
            if !self.is_known(&id) {
                archive.remove(&id).await?;
            }
        }
        for record in self.services.snapshots.requested() {
            if !archive.has(record.id.as_str()) {
                self.settle(record.id.as_str(), self.upload(&record).await)?;
            }
        }
        for record in self.hibernated() {
            self.settle(record.id.as_str(), self.upload_hibernated(&record).await)?;
        }
        archive.remove_superfluous().await?;
        self.evict().await
    }

    /// Whether what is stored under an id is still wanted.
    fn is_known(&self, id: &str) -> bool {
        id.parse().is_ok_and(|id| self.services.snapshots.contains(&id))
            || self.is_current(id)
            || self.copies.is_handed_over(id)
    }

    /// Fails if the object store is to blame, so that the rest waits, too.
    fn settle(&self, id: &str, uploaded: Result<(), EngineError>) -> Result<(), EngineError> {
        match uploaded {
            Ok(()) | Err(EngineError::Archive(ArchiveError::Unwanted)) => {}
            Err(EngineError::Archive(error)) if error.is_transient() => return Err(error.into()),
            Err(error) => {
                self.services.counters.snapshot_uploads_failed.add(1);
                tracing::error!(id, error = error_text(&error), "could not copy to the object store");
            }
        }
        Ok(())
    }

    async fn upload(&self, record: &SnapshotRecord) -> Result<(), EngineError> {
        let Services { snapshots, stamped_store, counters, .. } = &*self.services;
        let _hold = snapshots.hold(&record.layers, Some(&record.id));
        // Serializing text and numbers cannot fail.
        let document = serde_json::to_value(Document::of(record)).unwrap_or_default();
        let source = self.source(record.id.as_str(), record, document).await?;
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

    /// The files of a snapshot and of the disks below it, to be stored under an id.
    pub(super) async fn source(
        &self,
        id: &str,
        record: &SnapshotRecord,
        document: serde_json::Value,
    ) -> Result<SourceSnapshot, EngineError> {
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
        Ok(SourceSnapshot { id: id.to_owned(), account: record.account.clone(), record: document, parts })
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
}
