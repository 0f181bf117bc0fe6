//! Finds snapshots and what belongs to them: on this host, or in the object store.

use std::collections::HashSet;
use std::sync::Arc;

use api::SnapshotId;
use archive::{ArchiveError, Manifest};
use driver::SnapshotScope;
use serde::de::DeserializeOwned;
use store::SnapshotRecord;

use crate::error::{EngineError, SnapshotError};
use crate::services::Services;
use crate::snapshots::{Copies, Document, snapshot_ids};

/// A snapshot of the account: of this host, or one that another host has stored.
pub async fn find(
    services: &Services,
    account: &str,
    id: &SnapshotId,
) -> Result<Arc<SnapshotRecord>, EngineError> {
    match (services.snapshots.find(account, id), &services.copies) {
        (Err(EngineError::Snapshot(SnapshotError::NotFound { .. })), Some(copies))
            if !services.snapshots.contains(id) =>
        {
            find_elsewhere(services, copies, account, id).await.map(Arc::new)
        }
        (found, _) => found,
    }
}

async fn find_elsewhere(
    services: &Services,
    copies: &Copies,
    account: &str,
    id: &SnapshotId,
) -> Result<SnapshotRecord, EngineError> {
    let unknown = || EngineError::Snapshot(SnapshotError::NotFound { id: id.clone() });
    let manifest = copies.archive.manifest(id.as_str()).await?.ok_or_else(unknown)?;
    // One of this host without a record was deleted, and its copy is about to be.
    if manifest.account != account || copies.archive.is_own(&manifest) {
        return Err(unknown());
    }
    let document: Document = document(&manifest)?;
    let layers = copies.image_layers(document.image_digest()).unwrap_or_default();
    Ok(document.into_record(id.clone(), account, services.host.driver(), layers))
}

/// What the host that has stored something says of it.
pub(super) fn document<T: DeserializeOwned>(manifest: &Manifest) -> Result<T, ArchiveError> {
    T::deserialize(&manifest.record)
        .map_err(|error| ArchiveError::Damaged { object: manifest.id.clone(), reason: error.to_string() })
}

/// Finds out which disks are not on this host, after a start.
pub async fn find_remote(services: &Services) -> Result<(), EngineError> {
    let Some(copies) = &services.copies else { return Ok(()) };
    let driver = services.host.driver();
    let records = services.snapshots.requested();
    let ids: HashSet<SnapshotId> = records.iter().flat_map(|record| snapshot_ids(&record.layers)).collect();
    for id in ids {
        let is_missing = driver.snapshot_files(&id, SnapshotScope::Disk).await?.is_empty();
        if is_missing {
            copies.set_remote(&id);
        }
    }
    Ok(())
}
