//! Removes the disks of snapshots that nothing refers to: of deleted snapshots, of failed ones, and of forks that have ended. Their
//! processes are removed as soon as no sandbox can be created from them.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use api::SnapshotId;

use super::{Copies, SnapshotRegistry, snapshot_ids};
use crate::detached::ExecutionRegistry;
use crate::error::EngineError;
use crate::host::Host;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// Sweeps are at least this far apart, so that many terminations cause one.
const INTERVAL: Duration = Duration::from_millis(200);
const RETRY: Duration = Duration::from_secs(10);

/// Sweeps once, and whenever it is requested.
pub fn start(
    host: Arc<Host>,
    sandboxes: Arc<SandboxRegistry>,
    snapshots: Arc<SnapshotRegistry>,
    detached: Arc<ExecutionRegistry>,
    copies: Option<Arc<Copies>>,
    tasks: &Tasks,
) {
    tasks.spawn_until_stopped(async move {
        loop {
            let swept = sweep(&host, &sandboxes, &snapshots, &detached, copies.as_deref()).await;
            tokio::time::sleep(INTERVAL).await;
            match swept {
                Ok(()) => snapshots.sweep_requested().await,
                Err(error) => {
                    tracing::error!(%error, "could not remove superfluous snapshots; trying again");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    });
}

async fn sweep(
    host: &Host,
    sandboxes: &SandboxRegistry,
    snapshots: &SnapshotRegistry,
    detached: &Arc<ExecutionRegistry>,
    copies: Option<&Copies>,
) -> Result<(), EngineError> {
    // A snapshot of another host has no record: who uses it takes a hold, and then looks whether its files are here.
    let _removal = match copies {
        Some(copies) => Some(copies.removal.write().await),
        None => None,
    };
    // Listed before the references are read: what is made meanwhile is not in the list.
    let found = host.driver().list_snapshots().await?;
    if found.is_empty() {
        return Ok(());
    }
    let (needed, usable) = (snapshots.needed(), snapshots.usable());
    let layers = used_by(sandboxes);
    let mut result = Ok(());
    for id in found.into_iter().filter(|id| !usable.contains(id)) {
        let is_layer = needed.contains(&id) || layers.contains(&id);
        result = remove(host, detached, &id, is_layer).await.and(result);
    }
    result
}

/// The snapshots below sandboxes. Read it after the holds: a create commits its record before it drops its hold.
pub fn used_by(sandboxes: &SandboxRegistry) -> HashSet<SnapshotId> {
    sandboxes.records().iter().flat_map(|record| snapshot_ids(&record.layers)).collect()
}

/// Removes a snapshot from which no sandbox can be created, as far as it is not a layer of others.
async fn remove(
    host: &Host,
    detached: &Arc<ExecutionRegistry>,
    id: &SnapshotId,
    is_layer: bool,
) -> Result<(), EngineError> {
    // First: the snapshots are found again by what the driver has of them.
    detached.remove_stored(id).await?;
    if is_layer {
        return Ok(host.driver().discard_snapshot_processes(id).await?);
    }
    tracing::debug!(%id, "removing a snapshot that nothing refers to");
    Ok(host.driver().remove_snapshot(id).await?)
}
