//! Lets the driver end commands that take memory of the host which no limit of their sandbox counts.
//!
//! It runs as a task of the engine. A failure is logged once; the next round tries again.

use std::sync::Arc;
use std::time::Duration;

use crate::services::Services;

/// In this time a program can take a few hundred megabytes.
const INTERVAL: Duration = Duration::from_millis(250);

/// Looks until the engine stops.
pub fn start(services: &Arc<Services>) {
    let host = Arc::clone(&services.host);
    services.tasks.spawn_until_stopped(async move {
        let mut is_failing = false;
        loop {
            tokio::time::sleep(INTERVAL).await;
            match host.driver().end_hoarders().await {
                Ok(ended) => {
                    is_failing = false;
                    for (id, hoard) in ended {
                        tracing::warn!(%id, %hoard, "killed the commands of a sandbox, which took too much memory of the host");
                    }
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
