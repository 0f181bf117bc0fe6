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
const RETRY: Duration = Duration::from_secs(10);

/// Sweeps once, and whenever it is requested.
pub fn start(
    host: Arc<Host>,
    sandboxes: Arc<SandboxRegistry>,
    snapshots: Arc<SnapshotRegistry>,
    tasks: &Tasks,
) {
    tasks.spawn_until_stopped(async move {
        loop {
            let swept = sweep(&host, &sandboxes, &snapshots).await;
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
) -> Result<(), DriverError> {
    // Listed before the references are read: what is made meanwhile is not in the list.
    let found = host.driver().list_snapshots().await?;
    if found.is_empty() {
        return Ok(());
    }
    // Holds and records of snapshots are read before those of sandboxes: a create commits its record before it drops its hold.
    let needed = snapshots.needed();
    let layers: HashSet<SnapshotId> = sandboxes
        .records()
        .iter()
        .flat_map(|record| record.layers.iter())
        .filter_map(|layer| snapshot_of_layer(Path::new(layer)))
        .collect();
    let mut result = Ok(());
    for id in found.into_iter().filter(|id| !needed.contains(id) && !layers.contains(id)) {
        tracing::debug!(%id, "removing a snapshot that nothing refers to");
        result = host.driver().remove_snapshot(&id).await.and(result);
    }
    result
}
