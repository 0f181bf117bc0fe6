//! The background task of admission: refreshes the keyring, drops idle rate limit windows and stores when keys were last used.

use std::sync::Arc;
use std::time::Duration;

use crate::wall_clock::now;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::Gate;

/// A revocation takes effect within a second; this leaves time for a slow disk.
const KEYS_EVERY: Duration = Duration::from_millis(300);
/// In refreshes of the keyring.
const SWEEP_EVERY: u32 = 20;
/// In refreshes of the keyring: a minute.
const SAVE_EVERY: u32 = 200;

/// Runs until `stop` is cancelled; then the caller waits for the handle.
pub fn maintain(gate: Arc<Gate>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut rounds = tokio::time::interval(KEYS_EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round: u32 = 0;
        let mut failing = false;
        let mut checked_at = now();
        while stop.run_until_cancelled(rounds.tick()).await.is_some() {
            match gate.keyring.refresh(&*gate.store).await {
                Ok(_) => {
                    if failing {
                        tracing::info!("the API keys can be read again");
                    }
                    failing = false;
                }
                // Logged once, not at every refresh.
                Err(error) if !failing => {
                    tracing::error!(%error, "the API keys cannot be read; the known ones stay valid");
                    failing = true;
                }
                Err(_) => {}
            }
            let checked_before = std::mem::replace(&mut checked_at, now());
            gate.keyring.log_expired(checked_before, checked_at);
            round = round.wrapping_add(1);
            if round.is_multiple_of(SWEEP_EVERY) {
                gate.limiter.sweep();
            }
            if round.is_multiple_of(SAVE_EVERY) {
                save_uses(&gate).await;
            }
        }
        save_uses(&gate).await;
    })
}

/// Waits for the disk on a thread of its own.
async fn save_uses(gate: &Arc<Gate>) {
    let gate = Arc::clone(gate);
    // A panic is logged by its hook, and the next round tries again.
    let _ = tokio::task::spawn_blocking(move || gate.key_uses.save()).await;
}
