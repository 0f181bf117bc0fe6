//! The turns of sandboxes at a thread that serves requests in the order of their arrival.
//!
//! A sandbox that looks up many names at once would otherwise fill the queue with its addresses, and creates would wait behind them.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use base::IgnorePoison;

/// At most one request of each sandbox at a time, by its address. There are at most as many as the pool has addresses.
#[derive(Default)]
pub struct Turns(Mutex<HashMap<Ipv4Addr, Arc<tokio::sync::Mutex<()>>>>);

/// Until it is dropped, no other request of the sandbox has its turn.
pub type Turn = tokio::sync::OwnedMutexGuard<()>;

impl Turns {
    /// Waits for the earlier requests of a sandbox.
    pub async fn of(&self, guest: Ipv4Addr) -> Turn {
        let own = Arc::clone(self.0.lock().ignore_poison().entry(guest).or_default());
        own.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_sandbox_waits_for_its_own_requests_only() {
        let (one, other) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        let turns = Turns::default();
        let first = turns.of(one).await;
        let _others = turns.of(other).await;
        let second = tokio::time::timeout(Duration::from_secs(1), turns.of(one));
        assert!(second.await.is_err());
        drop(first);
        turns.of(one).await;
    }
}
