//! Deletes expired rows from the store: terminated sandboxes with their events, and idempotency records.
//!
//! Runs as a task of the engine. A purge that fails is logged and repeated with the next one; a purge that is cut off has deleted
//! a part of the rows.

use std::sync::Arc;
use std::time::Duration;

use store::StoreError;

use crate::shared::Shared;

const INTERVAL: Duration = Duration::from_secs(10 * 60);

pub fn start(shared: &Arc<Shared>) {
    let shared_by_task = Arc::clone(shared);
    shared.tasks.spawn(async move {
        let stopping = shared_by_task.stopping.clone();
        stopping.run_until_cancelled(run(&shared_by_task)).await;
    });
}

async fn run(shared: &Shared) {
    loop {
        if let Err(error) = purge(shared).await {
            tracing::error!(%error, "could not delete expired rows from the store; trying again later");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn purge(shared: &Shared) -> Result<(), StoreError> {
    let now = shared.clock.now();
    shared.counters.purged_answers.add(shared.store.purge_remembered(now).await?);
    match shared.settings.terminated_retention_ms {
        0 => Ok(()),
        retention_ms => {
            let gone = shared.store.purge(now.before(retention_ms)).await?;
            shared.counters.purged_sandboxes.add(gone);
            Ok(())
        }
    }
}
