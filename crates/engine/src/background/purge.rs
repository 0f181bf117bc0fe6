//! Deletes what has expired: terminated sandboxes with their events, idempotency records, and snapshots. Terminated sandboxes of an
//! account that has more bytes of their records than it may are deleted before they expire, the oldest first.
//!
//! Runs as a task of the engine. A purge that fails is logged and repeated at the next interval. An interrupted purge
//! has deleted some of the rows.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::counters::Counters;
use crate::error::EngineError;
use crate::record::stamped_store::StampedStore;
use crate::snapshots::{SnapshotRegistry, delete};
use crate::tasks::Tasks;

const INTERVAL: Duration = Duration::from_secs(10 * 60);
/// How often accounts with too many bytes are looked for. An account can exceed its share by what it creates in this time.
const BYTES_INTERVAL: Duration = Duration::from_secs(60);

/// The reason in the event of a snapshot that has expired.
const EXPIRED: &str = "expired";

/// Retention times in milliseconds (0: for ever), and the largest size of an account's terminated records in bytes (0: unlimited).
#[derive(Clone, Copy)]
pub struct Retention {
    pub terminated: u64,
    pub terminated_bytes: u64,
    pub snapshots: u64,
}

/// Deletes what has expired.
pub struct Purge {
    pub stamped_store: StampedStore,
    pub snapshots: Arc<SnapshotRegistry>,
    pub counters: Arc<Counters>,
    pub retention: Retention,
}

impl Purge {
    /// Purges until the engine stops.
    pub fn start(self, tasks: &Tasks) {
        tasks.spawn_until_stopped(async move {
            let mut next_purge = Instant::now();
            loop {
                if next_purge <= Instant::now() {
                    next_purge = Instant::now() + INTERVAL;
                    log_failure(self.purge().await);
                }
                log_failure(self.purge_beyond().await);
                tokio::time::sleep(BYTES_INTERVAL).await;
            }
        });
    }

    async fn purge_beyond(&self) -> Result<(), EngineError> {
        if self.retention.terminated_bytes > 0 {
            let deleted = self.stamped_store.store().purge_beyond(self.retention.terminated_bytes).await?;
            self.counters.purged_sandboxes.add(deleted);
        }
        Ok(())
    }

    async fn purge(&self) -> Result<(), EngineError> {
        let Self { stamped_store, snapshots, counters, retention } = self;
        let now = stamped_store.now();
        counters.purged_idempotency_records.add(stamped_store.store().purge_idempotency_records(now).await?);
        if retention.terminated > 0 {
            let deleted = stamped_store.store().purge(now.before(retention.terminated)).await?;
            counters.purged_sandboxes.add(deleted);
        }
        if retention.snapshots > 0 {
            let expired = snapshots.requested();
            let before = now.before(retention.snapshots);
            for snapshot in expired.iter().filter(|snapshot| snapshot.created_at <= before) {
                delete::delete(stamped_store, snapshots, snapshot, EXPIRED).await?;
                counters.snapshots_expired.add(1);
            }
        }
        Ok(())
    }
}

fn log_failure(purged: Result<(), EngineError>) {
    if let Err(error) = purged {
        tracing::error!(%error, "could not delete what has expired; trying again later");
    }
}
