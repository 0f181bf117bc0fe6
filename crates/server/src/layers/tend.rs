//! What has to be done beside the requests: hearing of keys that were made or revoked, and dropping windows of the quiet.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::service::Service;

/// A revocation works within a second; this leaves time for a slow disk.
const KEYS_EVERY: Duration = Duration::from_millis(300);
/// In rounds of the above.
const SWEEP_EVERY: u32 = 20;

/// Goes on until it is stopped. The caller keeps the handle and waits for it after that.
pub fn tend(service: Arc<Service>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut rounds = tokio::time::interval(KEYS_EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round: u32 = 0;
        let mut failing = false;
        while stop.run_until_cancelled(rounds.tick()).await.is_some() {
            match service.keyring.refresh(&*service.store).await {
                Ok(changed) => {
                    if changed || failing {
                        tracing::info!("the keys are up to date");
                    }
                    failing = false;
                }
                // Once, not three times a second.
                Err(error) if !failing => {
                    tracing::error!(%error, "the keys cannot be read; those known so far stay valid");
                    failing = true;
                }
                Err(_) => {}
            }
            round = round.wrapping_add(1);
            if round.is_multiple_of(SWEEP_EVERY) {
                service.limiter.sweep();
            }
        }
    })
}
