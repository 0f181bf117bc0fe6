//! Deletes what has expired: terminated sandboxes with their events, idempotency records, and snapshots. Terminated sandboxes of an
//! account that has more bytes of their records than it may are deleted before they expire, the oldest first.
//!
//! Runs as a task of the engine. A purge that fails is logged and repeated at the next interval. An interrupted purge
//! has deleted some of the rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::delete_snapshot;
use crate::error::EngineError;
use crate::services::Services;
use crate::settings::EngineSettings;

const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How often accounts with too many bytes are looked for. An account can exceed its share by what it creates in this time.
const BYTES_INTERVAL: Duration = Duration::from_secs(60);

/// The reason in the event of a snapshot that has expired.
const EXPIRED: &str = "expired";

/// Retention times in milliseconds (0: for ever), and the largest size of an account's terminated records in bytes (0: unlimited).
#[derive(Clone, Copy)]
struct Retention {
    terminated: u64,
    terminated_bytes: u64,
    snapshots: u64,
}

pub fn start(services: &Arc<Services>, settings: &EngineSettings) {
    let retention = Retention {
        terminated: settings.terminated_retention_ms,
        terminated_bytes: settings.terminated_bytes,
        snapshots: settings.snapshot_retention_ms,
    };
    let owned = Arc::clone(services);
    services.tasks.spawn_until_stopped(async move {
        let mut next_purge = Instant::now();
        loop {
            if next_purge <= Instant::now() {
                next_purge = Instant::now() + INTERVAL;
                log_failure(purge(&owned, retention).await);
            }
            log_failure(purge_beyond(&owned, retention).await);
            tokio::time::sleep(BYTES_INTERVAL).await;
        }
    });
}

fn log_failure(purged: Result<(), EngineError>) {
    if let Err(error) = purged {
        tracing::error!(%error, "could not delete what has expired; trying again later");
    }
}

async fn purge_beyond(services: &Services, retention: Retention) -> Result<(), EngineError> {
    if retention.terminated_bytes > 0 {
        let deleted = services.stamped_store.store().purge_beyond(retention.terminated_bytes).await?;
        services.counters.purged_sandboxes.add(deleted);
    }
    Ok(())
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
