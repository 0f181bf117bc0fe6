//! Sandboxes kept ready. A create that finds a fit one takes it and has only to set its limits and write its record.
//!
//! Two tasks fill the shelves in the background and stand back while callers create. A sandbox has no record: if the daemon
//! dies, recovery removes it as it removes everything without one, so none can be handed out twice.

use std::sync::Arc;
use std::time::Duration;

use crate::create::ReservedSandbox;
use crate::error::EngineError;
use crate::eviction::evict_one;
use crate::settings::PoolTarget;
use crate::shared::Shared;
use crate::warm_pool::ProvisionedSandbox;

/// So many are made at once: the host's processors belong to the sandboxes that are in use.
const FILLERS: usize = 2;
/// How long filling waits while callers create, before it looks again.
const STAND_BACK: Duration = Duration::from_millis(50);
/// A shelf that could not be filled is looked at again within this after its time has come.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Starts filling. When the engine stops, what is half made is finished first: `drain` then finds and removes it.
pub fn start(shared: &Arc<Shared>) {
    for _ in 0..FILLERS {
        let shared_by_task = Arc::clone(shared);
        shared.tasks.spawn(async move { fill(&shared_by_task).await });
    }
}

async fn fill(shared: &Arc<Shared>) {
    while !shared.stopping.is_cancelled() {
        if shared.creating.get() > 0 {
            rest(shared, STAND_BACK).await;
            continue;
        }
        let Some((image, target)) = shared.warm_pool.next_to_provision() else {
            let news = tokio::time::timeout(LOOK_AGAIN, shared.warm_pool.wanted.notified());
            shared.stopping.run_until_cancelled(news).await;
            continue;
        };
        let made = provision(shared, &image, target).await;
        if let Err(error) = &made {
            tracing::warn!(image, %error, "could not fill the pool");
        }
        shared.warm_pool.deliver(&image, made.ok().flatten());
        // Another filler may be waiting for the same news.
        shared.warm_pool.wanted.notify_one();
    }
}

/// Waits, but not for longer than the engine runs.
async fn rest(shared: &Shared, duration: Duration) {
    shared.stopping.run_until_cancelled(tokio::time::sleep(duration)).await;
}

/// One sandbox; none while its image is not here.
async fn provision(
    shared: &Arc<Shared>,
    image: &str,
    target: PoolTarget,
) -> Result<Option<ProvisionedSandbox>, EngineError> {
    let Some(template) = (shared.find_image)(image) else {
        return Ok(None);
    };
    Ok(Some(ReservedSandbox::new(shared, target.resources)?.start(shared, template).await?))
}

/// Removes every sandbox. To be called when filling has ended.
pub async fn drain(shared: &Arc<Shared>) {
    while evict_one(shared).await {}
}
