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
/// In refreshes of the keyring: a minute, or more while the disk is slow.
const SAVE_EVERY: u32 = 200;

/// Runs until `stop` is cancelled; then the caller waits for the handle.
pub fn maintain(gate: Arc<Gate>, stop: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut rounds = tokio::time::interval(KEYS_EVERY);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round: u32 = 0;
        let mut failing = false;
        let mut checked_at = now();
        let mut saving: Option<JoinHandle<()>> = None;
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
            // Beside the refreshes: sandboxes that write can make the disk slow, and a revocation does not wait for it.
            if round.is_multiple_of(SAVE_EVERY) && saving.as_ref().is_none_or(JoinHandle::is_finished) {
                saving = Some(save_uses(&gate));
            }
        }
        // Two at a time would write the same file. A panic is logged by its hook, and the next save tries again.
        if let Some(saving) = saving {
            let _ = saving.await;
        }
        let _ = save_uses(&gate).await;
    })
}

/// Waits for the disk on a thread of its own.
fn save_uses(gate: &Arc<Gate>) -> JoinHandle<()> {
    let gate = Arc::clone(gate);
    tokio::task::spawn_blocking(move || gate.key_uses.save(|| gate.keyring.ids()))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use rules::{KeyText, Rates, TimeMs};
    use store::{Batch, KeyRecord, MemoryStore, Store as _, Write};

    use super::*;
    use crate::key_uses::KeyUses;
    use crate::keyring::{Keyring, hash_of};
    use crate::limiter::Limiter;
    use crate::metrics::RequestMetrics;

    async fn put_key(store: &MemoryStore, text: &KeyText) {
        let key = KeyRecord {
            id: "key_1".to_owned(),
            hash: hash_of(text),
            account: "a".to_owned(),
            scopes: "read".to_owned(),
            name: None,
            prefix_hint: text.hint().to_owned(),
            created_at: TimeMs(1),
            revoked_at: None,
            expires_at: None,
            limits: Default::default(),
        };
        store.commit(Batch::new().with(Write::PutKey(Box::new(key)))).await.unwrap();
    }

    async fn pass(rounds: u32) {
        for _ in 0..rounds {
            tokio::time::advance(KEYS_EVERY).await;
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        }
    }

    /// A sandbox that writes much makes the disk slow for the daemon, too.
    #[tokio::test(start_paused = true)]
    async fn a_slow_disk_does_not_delay_changes_of_keys() {
        let (store, dir) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let gate = Arc::new(Gate {
            keyring: Keyring::load(&store).await.unwrap(),
            key_uses: KeyUses::open(dir.path()),
            limiter: Limiter::new(Rates::UNLIMITED),
            in_flight: Default::default(),
            request_memory: Default::default(),
            output_memory: Default::default(),
            metrics: RequestMetrics::new(),
            trusted_proxies: Default::default(),
            store: Arc::new(store.clone()),
        });
        gate.key_uses.note("key_1", TimeMs(1));
        let (slow, (held, is_held), (release, released)) =
            (Arc::clone(&gate), mpsc::channel(), mpsc::channel());
        let disk = std::thread::spawn(move || {
            let _held = slow.key_uses.hold();
            held.send(()).unwrap();
            let _ = released.recv();
        });
        is_held.recv().unwrap();
        let stop = CancellationToken::new();
        let maintenance = maintain(Arc::clone(&gate), stop.clone());
        pass(2 * SAVE_EVERY).await;
        let text = KeyText::format([7; 32]);
        put_key(&store, &text).await;
        pass(3).await;
        assert!(gate.keyring.find(text.as_str()).is_some(), "the refresh waits for the disk");
        release.send(()).unwrap();
        disk.join().unwrap();
        stop.cancel();
        maintenance.await.unwrap();
        assert_eq!(crate::key_uses::read(dir.path()).unwrap().len(), 1);
    }
}
