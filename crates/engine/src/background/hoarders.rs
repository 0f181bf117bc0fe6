//! Lets the driver end commands that take memory of the host which no limit of their sandbox counts.
//!
//! It runs as a task of the engine. A failure is logged once; the next round tries again.

use std::sync::Arc;
use std::time::Duration;

use api::{EventKind, SandboxId};
use driver::Hoard;
use serde_json::json;

use crate::host::Host;
use crate::record::events;
use crate::record::stamped_store::StampedStore;
use crate::registry::SandboxRegistry;
use crate::tasks::Tasks;

/// In this time a program can take a few hundred megabytes.
const INTERVAL: Duration = Duration::from_millis(250);

/// Looks for sandboxes that take memory of the host.
pub struct HoarderWatch {
    pub host: Arc<Host>,
    pub registry: Arc<SandboxRegistry>,
    pub stamped_store: StampedStore,
}

impl HoarderWatch {
    /// Looks until the engine stops.
    pub fn start(self, tasks: &Tasks) {
        tasks.spawn_until_stopped(async move {
            let mut is_failing = false;
            loop {
                tokio::time::sleep(INTERVAL).await;
                match self.host.driver().end_hoarders().await {
                    Ok(ended) => {
                        is_failing = false;
                        ended.iter().for_each(|(id, hoard)| self.report(id, *hoard));
                    }
                    Err(error) if !is_failing => {
                        is_failing = true;
                        tracing::error!(%error, "cannot look for sandboxes that take memory of the host; trying again");
                    }
                    Err(_) => {}
                }
            }
        });
    }

    /// Tells the owner why the commands ended.
    fn report(&self, id: &SandboxId, hoard: Hoard) {
        let message =
            format!("the commands were killed because they took too much memory of the host by {hoard}");
        let Some(actor) = self.registry.find(id) else {
            // A warm sandbox, or one that has just ended.
            tracing::warn!(%id, "{message}");
            return;
        };
        let record = Arc::clone(&actor.status.borrow().record);
        tracing::warn!(%id, account = %record.account, "{message}");
        let (at, data) = (self.stamped_store.now(), json!({ "message": message }));
        self.stamped_store.append(events::of_sandbox(&record, at, EventKind::SandboxError, data));
    }
}
