//! Stores copies of snapshots and of hibernated sandboxes in the background, and removes those that are not wanted any more.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SnapshotId, SnapshotStorage};
use archive::{ArchiveError, SourceFile, SourcePart, SourceSnapshot};
use base::chain_text;
use driver::SnapshotScope;
use rules::{RepeatableWork, Turns};
use serde_json::json;
use store::{Batch, SandboxRecord, SnapshotRecord};

use super::fetch::{executions_part, processes_part};
use crate::error::{DaemonError, EngineError, SnapshotError};
use crate::record::events;
use crate::record::interruptions::Affected;
use crate::services::Services;
use crate::snapshots::{Copies, Document, snapshot_ids};

/// Between rounds without new snapshots: for uploads that failed on this host, and for snapshots that become unused.
const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// After this many failures in a row the rest waits for the next round.
const FAILURES: u32 = 3;
/// Uploads in a round. Those that are left are in the next one, after objects and disks that nothing needs are removed.
const MAX_IN_ROUND: usize = 100;
const FIRST_RETRY: Duration = Duration::from_secs(1);
const LAST_RETRY: Duration = Duration::from_secs(60);

/// Starts the worker. It also runs whenever a snapshot is taken or deleted, and a sandbox hibernates or wakes.
pub fn start(services: &Arc<Services>) {
    let Some(copies) = services.copies.clone() else { return };
    let worker = Worker { services: Arc::clone(services), copies };
    services.tasks.spawn_until_stopped(async move {
        let (mut is_reconciled, mut pass) = (false, Pass::default());
        let mut retry = FIRST_RETRY;
        loop {
            let done = worker.round(&mut is_reconciled, &mut pass).await;
            if let Err(error) = done {
                worker.services.counters.snapshot_uploads_failed.add(1);
                tracing::warn!(error = chain_text(&error), "copies wait for the object store");
                tokio::time::sleep(retry).await;
                retry = (retry * 2).min(LAST_RETRY);
                continue;
            }
            retry = FIRST_RETRY;
            let requested = worker.services.snapshots.sync_requested();
            let _ = tokio::time::timeout(INTERVAL, requested).await;
        }
    });
}

/// One attempt at everything that has no copy, in as many rounds as it takes.
#[derive(Default)]
struct Pass {
    turns: Turns,
    attempted: HashSet<String>,
}

/// What has no copy yet.
enum PendingUpload {
    Snapshot(Arc<SnapshotRecord>),
    Sandbox(Arc<SandboxRecord>),
}

impl PendingUpload {
    fn id(&self) -> &str {
        match self {
            Self::Snapshot(record) => record.id.as_str(),
            Self::Sandbox(record) => record.id.as_str(),
        }
    }

    fn account(&self) -> &str {
        self.affected().account
    }

    fn affected(&self) -> Affected<'_> {
        match self {
            Self::Snapshot(record) => Affected { account: &record.account, sandbox: &record.sandbox },
            Self::Sandbox(record) => Affected { account: &record.account, sandbox: &record.id },
        }
    }
}

impl Pass {
    fn begin(&mut self, upload: &PendingUpload) {
        self.turns.served(upload.account());
        self.attempted.insert(upload.id().to_owned());
    }
}

/// The task that keeps the object store up to date.
pub(super) struct Worker {
    pub(super) services: Arc<Services>,
    pub(super) copies: Arc<Copies>,
}

impl Worker {
    async fn round(&self, is_reconciled: &mut bool, pass: &mut Pass) -> Result<(), EngineError> {
        let archive = &self.copies.archive;
        if !*is_reconciled {
            self.read_hibernations().await?;
            // Before the comparison: that would restore the manifests that other hosts have withdrawn.
            self.give_up_adopted().await?;
            self.reconcile().await?;
            *is_reconciled = true;
        }
        self.forget_withdrawn().await?;
        self.transfer_all(pass).await?;
        archive.remove_unreferenced().await?;
        self.evict().await
    }

    /// Lets the next round upload again what the object store has lost.
    async fn store_again(&self, id: &str) -> Result<(), EngineError> {
        let record = self.services.snapshots.requested().into_iter().find(|record| record.id.as_str() == id);
        if record.is_some_and(|record| self.copies.storage(&record) == SnapshotStorage::Remote) {
            // Its other parts may be of use when the lost ones are found.
            tracing::error!(id, "the object store has lost a part of a snapshot that is not on this host");
            return Ok(());
        }
        tracing::warn!(id, "the object store has lost a part; it is uploaded again");
        if let Ok(id) = id.parse() {
            self.copies.set_stored_hibernation(&id, None);
        }
        Ok(self.copies.archive.forget(id).await?)
    }

    /// Compares what is stored with the ledger.
    pub(super) async fn reconcile(&self) -> Result<(), EngineError> {
        let found = self.copies.archive.reconcile().await?;
        for id in &found.lost {
            self.store_again(id).await?;
        }
        self.withdraw_adopted(&found.others).await
    }

    /// Removes copies that are not wanted any more and uploads what has none, one of both at a time, so that deleted snapshots of one
    /// account do not delay uploads of another. An upload that fails does not stop the others, unless the object store seems to be
    /// unreachable.
    async fn transfer_all(&self, pass: &mut Pass) -> Result<(), EngineError> {
        let (mut failed, mut in_a_row) = (None, 0);
        let (mut removals, mut uploads) = (HashSet::new(), 0);
        loop {
            let unwanted = self.unwanted(&removals);
            if let Some(id) = unwanted.first() {
                removals.insert(id.clone());
                self.remove_copy(id).await?;
            }
            let Some(upload) = self.next_upload(pass, &unwanted) else {
                if unwanted.is_empty() {
                    pass.attempted.clear();
                    break;
                }
                continue;
            };
            if uploads == MAX_IN_ROUND {
                self.services.snapshots.request_sync();
                break;
            }
            uploads += 1;
            pass.begin(&upload);
            let Some(uploaded) = self.upload_unless_given_up(&upload).await else { continue };
            let Err(error) = self.log_local_failure(upload.id(), uploaded) else {
                in_a_row = 0;
                continue;
            };
            failed = failed.or(Some(error));
            in_a_row += 1;
            if in_a_row == FAILURES {
                break;
            }
        }
        if failed.is_some() {
            // The next round tries again.
            pass.attempted.clear();
        }
        failed.map_or(Ok(()), Err)
    }

    /// Copies that are to be removed, without those whose removal was attempted.
    fn unwanted(&self, attempted: &HashSet<String>) -> Vec<String> {
        let mut ids = self.copies.archive.ids();
        ids.retain(|id| !attempted.contains(id) && !self.is_known(id));
        ids
    }

    /// What is uploaded next: of the account whose turn it is, and not under the id of a copy that is to be removed.
    fn next_upload(&self, pass: &Pass, unwanted: &[String]) -> Option<PendingUpload> {
        let snapshots = self.services.snapshots.requested();
        let mut pending: Vec<PendingUpload> = snapshots.into_iter().map(PendingUpload::Snapshot).collect();
        pending.retain(|upload| !self.copies.archive.has(upload.id()));
        pending.extend(self.hibernated().into_iter().map(PendingUpload::Sandbox));
        pending.retain(|upload| !pass.attempted.contains(upload.id()));
        pending.retain(|upload| unwanted.iter().all(|id| id != upload.id()));
        // This host uploads one at a time, so none holds anything.
        let account = pass.turns.next(pending.iter().map(|upload| (upload.account(), 0)))?.to_owned();
        pending.into_iter().find(|upload| upload.account() == account)
    }

    /// Uploads, unless daemons have ended during the upload.
    async fn upload_unless_given_up(&self, upload: &PendingUpload) -> Option<Result<(), EngineError>> {
        let work =
            self.services.interruptions.begin(RepeatableWork::Upload, upload.id(), Some(upload.affected()));
        let work = match work.await {
            Ok(work) => work,
            Err(EngineError::Daemon(DaemonError::GaveUp(_))) => return None,
            Err(error) => return Some(Err(error)),
        };
        let uploaded = match upload {
            PendingUpload::Snapshot(record) => self.upload(record).await,
            PendingUpload::Sandbox(record) => self.upload_hibernated(record).await,
        };
        work.end().await;
        Some(uploaded)
    }

    /// Removes what is stored under an id, unless daemons have ended during that.
    async fn remove_copy(&self, id: &str) -> Result<(), EngineError> {
        match self.services.interruptions.begin(RepeatableWork::CopyRemoval, id, None).await {
            Ok(work) => {
                let removed = self.copies.archive.remove(id).await;
                work.end().await;
                Ok(removed?)
            }
            Err(EngineError::Daemon(DaemonError::GaveUp(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether what is stored under an id is still wanted.
    fn is_known(&self, id: &str) -> bool {
        id.parse().is_ok_and(|id| self.services.snapshots.contains(&id))
            || self.is_current(id)
            || self.copies.archive.is_handed_over(id)
    }

    /// Logs a failure on this host, which the next round retries. Fails if the object store failed.
    fn log_local_failure(&self, id: &str, uploaded: Result<(), EngineError>) -> Result<(), EngineError> {
        match uploaded {
            Ok(()) | Err(EngineError::Snapshot(SnapshotError::Archive(ArchiveError::Unwanted))) => {}
            Err(EngineError::Snapshot(SnapshotError::Archive(error))) if error.is_transient() => {
                return Err(error.into());
            }
            Err(error) => {
                self.services.counters.snapshot_uploads_failed.add(1);
                tracing::error!(id, error = chain_text(&error), "could not copy to the object store");
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
        let data = json!({ "snapshotId": record.id, "sentBytes": sent.bytes });
        let event = events::of_snapshot(record, stamped_store.now(), EventKind::SnapshotStored, data);
        stamped_store.commit(Batch::new().event(event)).await?;
        Ok(sent.complete()?)
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
            parts.push(self.part(&record.account, id.to_string(), &id, SnapshotScope::Disk).await?);
        }
        if record.memory {
            let name = processes_part(&record.id);
            parts.push(self.part(&record.account, name, &record.id, SnapshotScope::Processes).await?);
            let files = self.services.detached.stored_files(&record.id).await?;
            let files = files.into_iter().map(|(name, path)| SourceFile { name, path });
            parts.push(SourcePart { name: executions_part(&record.id), files: files.collect() });
        }
        Ok(SourceSnapshot { id: id.to_owned(), account: record.account.clone(), record: document, parts })
    }

    /// A disk that is not on this host is stored already, or was lost with it.
    async fn part(
        &self,
        account: &str,
        name: String,
        id: &SnapshotId,
        scope: SnapshotScope,
    ) -> Result<SourcePart, EngineError> {
        let files = self.services.host.driver().snapshot_files(id, scope).await?;
        if files.is_empty() && !self.copies.archive.has_part(account, &name)? {
            return Err(EngineError::backend(format!("this host has lost files of {id}")));
        }
        let files = files.into_iter().map(|file| SourceFile { name: file.name, path: file.path });
        Ok(SourcePart { name, files: files.collect() })
    }
}
