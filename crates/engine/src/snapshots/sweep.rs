//! Removes the disks of snapshots that nothing refers to: of deleted snapshots, of failed ones, and of forks that have ended.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::SnapshotId;
use driver::{DriverError, snapshot_of_layer};

use super::SnapshotRegistry;
use crate::host::Host;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// Sweeps are at least this far apart, so that many terminations cause one.
const INTERVAL: Duration = Duration::from_millis(200);

/// Sweeps once, and whenever it is requested.
pub fn start(
    host: Arc<Host>,
    sandboxes: Arc<SandboxRegistry>,
    snapshots: Arc<SnapshotRegistry>,
    tasks: &Tasks,
) {
    tasks.spawn_until_stopped(async move {
        loop {
            if let Err(error) = sweep(&host, &sandboxes, &snapshots).await {
                tracing::error!(%error, "could not remove superfluous snapshots; the next sweep tries again");
            }
            tokio::time::sleep(INTERVAL).await;
            snapshots.sweep_requested().await;
        }
    });
}

async fn sweep(
    host: &Host,
    sandboxes: &SandboxRegistry,
    snapshots: &SnapshotRegistry,
) -> Result<(), DriverError> {
    // Listed before the references are read: what is made meanwhile is not in the list.
    let found = host.driver().list_snapshots().await?;
    if found.is_empty() {
        return Ok(());
    }
    // Holds and records of snapshots are read before those of sandboxes: a create commits its record before it drops its hold.
    let candidates: Vec<SnapshotId> = found.into_iter().filter(|id| !snapshots.is_needed(id)).collect();
    let layers: HashSet<SnapshotId> = sandboxes
        .records()
        .iter()
        .flat_map(|record| record.layers.iter())
        .filter_map(|layer| snapshot_of_layer(Path::new(layer)))
        .collect();
    for id in candidates.into_iter().filter(|id| !layers.contains(id)) {
        tracing::debug!(%id, "removing a snapshot that nothing refers to");
        host.driver().remove_snapshot(&id).await?;
    }
    Ok(())
}
