//! Brings snapshots to this host that only the object store has: its own, and those that other hosts have stored.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use api::SnapshotId;
use archive::{ArchiveError, Manifest, SnapshotPart};
use driver::SnapshotScope;
use rules::RepeatableWork;
use store::SnapshotRecord;

use super::find::find;
use crate::capacity::host_watch::check_room;
use crate::capacity::ledger::QuotaCheck;
use crate::error::{DaemonError, EngineError, SnapshotError};
use crate::record::interruptions::Affected;
use crate::services::Services;
use crate::snapshots::{Copies, PendingShare, SnapshotKind, snapshot_ids};
use crate::template::Template;
use crate::template::hold::SnapshotHold;

/// A request that waits longer gets an error, and the transfer goes on.
const WAIT: Duration = Duration::from_secs(25);
const MB: u64 = 1 << 20;

pub fn processes_part(id: &SnapshotId) -> String {
    format!("{id}/processes")
}

pub fn executions_part(id: &SnapshotId) -> String {
    format!("{id}/executions")
}

/// What sandboxes above a snapshot begin with. All of it is on this host and held.
pub async fn template(
    services: &Arc<Services>,
    account: &str,
    id: &SnapshotId,
) -> Result<(Template, Arc<SnapshotRecord>), EngineError> {
    let Some(copies) = &services.copies else { return services.snapshots.template(account, id) };
    // Held before it is looked up: the sweeper would find neither.
    let hold = services.snapshots.hold(&[], Some(id));
    let record = find(services, account, id).await?;
    if !services.snapshots.contains(id) && copies.image_layers(&record.image_digest).is_none() {
        let (image, digest) = (record.image.clone(), record.image_digest.clone());
        return Err(SnapshotError::OtherImage { image, digest }.into());
    }
    let template = services.snapshots.template_of(&record);
    let ids = snapshot_ids(&record.layers);
    copies.set_used(&ids, services.stamped_store.now());
    let fetch = Fetch {
        services: Arc::clone(services),
        copies: Arc::clone(copies),
        record,
        hold: template.hold.clone(),
        stored_as: id.to_string(),
    };
    let record = Arc::clone(&fetch.record);
    if !fetch.is_complete().await? {
        // It goes on if the caller stops waiting.
        let tasks = services.tasks.clone();
        let run = async move {
            tasks.until_stopped(fetch.run()).await.unwrap_or(Err(EngineError::Daemon(DaemonError::Stopping)))
        };
        let fetched = tokio::time::timeout(WAIT, services.tasks.spawn(run)).await;
        let fetched =
            fetched.map_err(|_| EngineError::Snapshot(SnapshotError::Arriving { id: id.clone() }))?;
        fetched.map_err(|_| DaemonError::TaskLost)??;
    }
    drop(hold);
    Ok((template, record))
}

/// A transfer to this host.
pub(super) struct Fetch {
    pub(super) services: Arc<Services>,
    pub(super) copies: Arc<Copies>,
    /// The id of the manifest.
    pub(super) stored_as: String,
    pub(super) record: Arc<SnapshotRecord>,
    /// Kept until everything is here.
    pub(super) hold: SnapshotHold,
}

impl Fetch {
    async fn has(&self, id: &SnapshotId, scope: SnapshotScope) -> Result<bool, EngineError> {
        // Waits for a removal that began before the snapshot was held.
        let _removal = self.copies.removal.read().await;
        Ok(!self.services.host.driver().snapshot_files(id, scope).await?.is_empty())
    }

    async fn is_complete(&self) -> Result<bool, EngineError> {
        for id in snapshot_ids(&self.record.layers) {
            if !self.has(&id, SnapshotScope::Disk).await? {
                return Ok(false);
            }
        }
        Ok(!self.record.memory || self.has(&self.record.id, SnapshotScope::Processes).await?)
    }

    /// Brings everything here, unless daemons have ended during that.
    pub(super) async fn run(self) -> Result<(), EngineError> {
        let affected = Affected { account: &self.record.account, sandbox: &self.record.sandbox };
        let interruptions = &self.services.interruptions;
        let work = interruptions.begin(RepeatableWork::Fetch, &self.stored_as, Some(affected)).await?;
        let fetched = self.fetch().await;
        work.end().await;
        fetched
    }

    async fn fetch(self) -> Result<(), EngineError> {
        let (id, stored_as) = (&self.record.id, &self.stored_as);
        let manifest = self.copies.archive.manifest(stored_as).await?;
        let manifest = manifest.ok_or_else(|| ArchiveError::Missing { object: stored_as.clone() })?;
        if self.record.memory {
            let transfer = self.copies.transfer(id);
            let _one = transfer.lock().await;
            if !self.has(id, SnapshotScope::Processes).await? {
                self.fetch_executions(&manifest).await?;
                self.fetch_files(&manifest, id, part(&manifest, &processes_part(id))?).await?;
            }
        }
        for below in snapshot_ids(&self.record.layers) {
            let transfer = self.copies.transfer(&below);
            let _one = transfer.lock().await;
            if !self.has(&below, SnapshotScope::Disk).await? {
                self.fetch_files(&manifest, &below, part(&manifest, below.as_str())?).await?;
            }
            self.copies.set_present(&below);
        }
        self.services.counters.snapshots_fetched.add(1);
        drop(self.hold);
        Ok(())
    }

    async fn fetch_files(
        &self,
        manifest: &Manifest,
        id: &SnapshotId,
        part: &SnapshotPart,
    ) -> Result<(), EngineError> {
        let _permit = self.copies.transfer_permits.acquire(&self.record.account).await;
        let chunks: u64 = part.files.iter().map(|file| file.chunks.len() as u64).sum();
        let bytes = chunks.saturating_mul(MB);
        let share = self.count(id, bytes).await?;
        check_room(&self.services.ledger, self.services.host_watch.as_ref(), bytes)?;
        let driver = self.services.host.driver();
        let names = names(part);
        let paths = driver.receive_snapshot(id, names).await?;
        self.download(manifest, part, &paths).await?;
        driver.complete_snapshot(id).await?;
        if let Some(share) = share {
            share.resize(driver.snapshot_bytes(id).await?, QuotaCheck::CountOnly)?;
        }
        Ok(())
    }

    /// Counts the files of a snapshot in the quotas of its account. A snapshot of this host counts by its record, wherever its files are.
    async fn count(&self, id: &SnapshotId, bytes: u64) -> Result<Option<PendingShare>, EngineError> {
        let snapshots = &self.services.snapshots;
        if snapshots.contains(id) {
            return Ok(None);
        }
        let size = (bytes, QuotaCheck::Enforced);
        snapshots.begin(id, &self.record.account, SnapshotKind::Hidden, size).await.map(Some)
    }

    async fn fetch_executions(&self, manifest: &Manifest) -> Result<(), EngineError> {
        let id = &self.record.id;
        let part = part(manifest, &executions_part(id))?;
        let names = names(part);
        let paths = self.services.detached.receive_stored(id, names).await?;
        self.download(manifest, part, &paths).await
    }

    async fn download(
        &self,
        manifest: &Manifest,
        part: &SnapshotPart,
        to: &[PathBuf],
    ) -> Result<(), EngineError> {
        for (file, path) in part.files.iter().zip(to) {
            self.copies.archive.download(manifest, file, path).await?;
        }
        Ok(())
    }
}

fn names(part: &SnapshotPart) -> Vec<String> {
    part.files.iter().map(|file| file.name.clone()).collect()
}

fn part<'a>(manifest: &'a Manifest, name: &str) -> Result<&'a SnapshotPart, EngineError> {
    let found = manifest.part(name);
    Ok(found.ok_or_else(|| ArchiveError::Missing { object: format!("{} in {}", name, manifest.id) })?)
}
