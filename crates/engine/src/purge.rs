//! Deletes what has expired: terminated sandboxes with their events, idempotency records, and snapshots.
//!
//! Runs as a task of the engine. A purge that fails is logged and repeated at the next interval. An interrupted purge
//! has deleted some of the rows.

use std::sync::Arc;
use std::time::Duration;

use crate::delete_snapshot;
use crate::error::EngineError;
use crate::services::Services;
use crate::settings::EngineSettings;

const INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The reason in the event of a snapshot that has expired.
const EXPIRED: &str = "expired";

/// How long what is kept, in milliseconds; 0 for ever.
#[derive(Clone, Copy)]
struct Retention {
    terminated: u64,
    snapshots: u64,
}

pub fn start(services: &Arc<Services>, settings: &EngineSettings) {
    let retention =
        Retention { terminated: settings.terminated_retention_ms, snapshots: settings.snapshot_retention_ms };
    let owned = Arc::clone(services);
    services.tasks.spawn_until_stopped(async move {
        loop {
            if let Err(error) = purge(&owned, retention).await {
                tracing::error!(%error, "could not delete what has expired; trying again later");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    });
}

async fn purge(services: &Services, retention: Retention) -> Result<(), EngineError> {
    let Services { stamped_store, counters, .. } = services;
    let now = stamped_store.now();
    counters.purged_idempotency_records.add(stamped_store.store().purge_idempotency_records(now).await?);
    if retention.terminated > 0 {
        let deleted = stamped_store.store().purge(now.before(retention.terminated)).await?;
        counters.purged_sandboxes.add(deleted);
    }
    if retention.snapshots > 0 {
        let expired = services.snapshots.requested();
        let before = now.before(retention.snapshots);
        for snapshot in expired.iter().filter(|snapshot| snapshot.created_at <= before) {
            delete_snapshot::delete(services, snapshot, EXPIRED).await?;
            counters.snapshots_expired.add(1);
        }
    }
    Ok(())
}
