//! Deletes expired rows from the store: terminated sandboxes with their events, and idempotency records.
//!
//! Runs as a task of the engine. A purge that fails is logged and repeated at the next interval. An interrupted purge
//! has deleted some of the rows.

use std::sync::Arc;
use std::time::Duration;

use store::StoreError;

use crate::counters::Counters;
use crate::stamped_store::StampedStore;
use crate::tasks::Tasks;

const INTERVAL: Duration = Duration::from_secs(10 * 60);

pub fn start(
    stamped_store: StampedStore,
    counters: Arc<Counters>,
    terminated_retention_ms: u64,
    tasks: &Tasks,
) {
    tasks.spawn_until_stopped(async move {
        loop {
            if let Err(error) = purge(&stamped_store, &counters, terminated_retention_ms).await {
                tracing::error!(%error, "could not delete expired rows from the store; trying again later");
            }
            tokio::time::sleep(INTERVAL).await;
        }
    });
}

async fn purge(
    stamped_store: &StampedStore,
    counters: &Counters,
    terminated_retention_ms: u64,
) -> Result<(), StoreError> {
    let now = stamped_store.now();
    counters.purged_idempotency_records.add(stamped_store.store().purge_idempotency_records(now).await?);
    if terminated_retention_ms > 0 {
        let deleted = stamped_store.store().purge(now.before(terminated_retention_ms)).await?;
        counters.purged_sandboxes.add(deleted);
    }
    Ok(())
}
