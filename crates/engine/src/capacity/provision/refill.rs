//! Fills the warm pool in the background.
//!
//! The tasks pause while callers create sandboxes, but not longer than a second for each sandbox: the creates of one account cannot keep
//! the pool empty. A warm sandbox has no record: if the daemon crashes, recovery removes it, so no
//! sandbox is given to two callers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::warm_pool::{PoolKey, PoolTarget, WarmPool};
use super::{ProvisionedSandbox, Provisioner};
use crate::counters::Counters;
use crate::error::EngineError;
use crate::tasks::Tasks;
use crate::template::FindImage;

/// The number of sandboxes that are provisioned at a time. Most of the CPU time belongs to sandboxes in use.
const TASKS: usize = 2;
/// How long a task pauses before it checks again whether callers create sandboxes.
const CREATE_PAUSE: Duration = Duration::from_millis(50);
/// Then it provisions one, whether or not they do.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How soon after its delay a failed image is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// What the refill tasks work with.
#[derive(Clone)]
pub struct Refill {
    pub pool: Arc<WarmPool>,
    pub provisioner: Arc<Provisioner>,
    pub find_image: FindImage,
    pub counters: Arc<Counters>,
    pub tasks: Tasks,
}

impl Refill {
    /// Starts the tasks. When the engine stops they complete the sandboxes in progress, which the engine then evicts.
    pub fn start(self) {
        for _ in 0..TASKS {
            let refill = self.clone();
            self.tasks.spawn(async move { refill.run().await });
        }
    }

    async fn run(&self) {
        let mut paused_since = None;
        while !self.tasks.is_stopping() {
            if self.counters.creating.get() > 0
                && paused_since.get_or_insert_with(Instant::now).elapsed() < LONGEST_PAUSE
            {
                self.tasks.until_stopped(tokio::time::sleep(CREATE_PAUSE)).await;
                continue;
            }
            paused_since = None;
            let Some((key, target)) = self.pool.next_to_provision() else {
                self.discard_of_missing_images();
                let requested = tokio::time::timeout(RETRY_INTERVAL, self.pool.refill_requested());
                self.tasks.until_stopped(requested).await;
                continue;
            };
            let provisioned = self.provision(&key, target).await;
            self.log_failure(&key, provisioned.as_ref().err());
            self.pool.deliver(&key, provisioned.ok().flatten());
        }
    }

    /// No create takes a sandbox whose image was removed.
    fn discard_of_missing_images(&self) {
        for sandbox in self.pool.take_of_missing(|image| (self.find_image)(image).is_some()) {
            tracing::info!(image = %sandbox.template.name, "discarded a warm sandbox, because its image was removed");
            self.provisioner.discard_in_background(sandbox);
        }
    }

    /// Logs why a sandbox was not provisioned. While the host is full, all pools fail again and again for the same reason, which is
    /// logged once.
    fn log_failure(&self, key: &PoolKey, failure: Option<&EngineError>) {
        let PoolKey { image, isolation } = key;
        let mut capacity_warning = self.pool.capacity_warning();
        match failure {
            None => capacity_warning.admitted(key),
            Some(error) if !error.is_lack_of_capacity() => {
                capacity_warning.admitted(key);
                tracing::warn!(image, %isolation, %error, "could not provision a warm sandbox");
            }
            Some(error) if capacity_warning.refused(key.clone()) => {
                tracing::warn!(%error, "the host has no capacity for warm sandboxes; the pool is filled when it has");
            }
            Some(error) => tracing::debug!(image, %isolation, %error, "no capacity for a warm sandbox"),
        }
    }

    /// `None` if the image is not on this host.
    async fn provision(
        &self,
        key: &PoolKey,
        target: PoolTarget,
    ) -> Result<Option<ProvisionedSandbox>, EngineError> {
        let Some(template) = (self.find_image)(&key.image) else {
            return Ok(None);
        };
        Ok(Some(self.provisioner.provision(target.resources, template, key.isolation).await?))
    }
}
