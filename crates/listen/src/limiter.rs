//! Limits per source address, which apply before a client has authenticated: open connections and TLS handshakes in
//! progress. Without them one address could use all connections of the service. One limiter serves all listeners.
//!
//! An IPv6 client is counted by its /64, because it can choose any address in it. Loopback addresses are counted like
//! all others. Addresses that the program exempts (reverse proxies, which connect for all their clients) are not
//! counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use base::IgnorePoison;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::settings::Limits;

/// Tells which addresses are not limited.
pub type IsExempt = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

const IPV6_SITE: u128 = u128::MAX << 64;

/// The unit of counting: an IPv4 address, or the /64 of an IPv6 address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ClientNetwork(u128);

impl ClientNetwork {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self(address.to_ipv6_mapped().to_bits()),
            IpAddr::V6(address) => Self(address.to_bits() & IPV6_SITE),
        }
    }
}

struct Use {
    connections: usize,
    handshakes: Arc<Semaphore>,
}

/// Counts the connections of each source address.
pub struct ConnectionLimiter {
    max_connections: usize,
    max_handshakes: usize,
    is_exempt: IsExempt,
    sources: Mutex<HashMap<ClientNetwork, Use>>,
}

impl ConnectionLimiter {
    pub fn new(limits: &Limits, is_exempt: IsExempt) -> Arc<Self> {
        Arc::new(Self {
            max_connections: limits.max_connections_per_address,
            max_handshakes: limits.max_handshakes_per_address.clamp(1, Semaphore::MAX_PERMITS),
            is_exempt,
            sources: Mutex::default(),
        })
    }

    /// A permit for one connection from `address`, or `None` if the address has reached its limit.
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<ConnectionPermit> {
        if (self.is_exempt)(address) {
            return Some(ConnectionPermit { counted: None });
        }
        let source = ClientNetwork::of(address);
        let mut sources = self.sources();
        let usage = sources.entry(source).or_insert_with(|| Use {
            connections: 0,
            handshakes: Arc::new(Semaphore::new(self.max_handshakes)),
        });
        if usage.connections >= self.max_connections {
            return None;
        }
        usage.connections += 1;
        let handshakes = Arc::clone(&usage.handshakes);
        Some(ConnectionPermit { counted: Some(Counted { limiter: Arc::clone(self), source, handshakes }) })
    }

    fn sources(&self) -> MutexGuard<'_, HashMap<ClientNetwork, Use>> {
        self.sources.lock().ignore_poison()
    }
}

struct Counted {
    limiter: Arc<ConnectionLimiter>,
    source: ClientNetwork,
    handshakes: Arc<Semaphore>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.limiter.sources().entry(self.source) {
            entry.get_mut().connections -= 1;
            if entry.get().connections == 0 {
                entry.remove();
            }
        }
    }
}

/// The right of one connection to be open. Dropping it frees the slot.
pub struct ConnectionPermit {
    counted: Option<Counted>,
}

impl ConnectionPermit {
    /// Waits until the address has a free handshake slot. The caller bounds the wait.
    pub async fn handshake(&self) -> Option<OwnedSemaphorePermit> {
        let handshakes = Arc::clone(&self.counted.as_ref()?.handshakes);
        // The semaphore is never closed.
        handshakes.acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limiter(max_connections_per_address: usize) -> Arc<ConnectionLimiter> {
        let limits =
            Limits { max_connections_per_address, max_handshakes_per_address: 1, ..Limits::default() };
        let proxy: IpAddr = "10.0.0.1".parse().unwrap();
        ConnectionLimiter::new(&limits, Arc::new(move |address| address == proxy))
    }

    fn admit(limiter: &Arc<ConnectionLimiter>, address: &str) -> Option<ConnectionPermit> {
        limiter.admit(address.parse().unwrap())
    }

    #[test]
    fn each_source_has_its_own_limit_and_permits_come_back() {
        let limiter = limiter(2);
        for (same, other) in [
            (["192.0.2.1", "192.0.2.1", "::ffff:192.0.2.1"], "192.0.2.2"),
            (["2001:db8::1", "2001:db8::ffff", "2001:db8:0:0:1::"], "2001:db8:0:1::1"),
            (["127.0.0.1", "127.0.0.1", "127.0.0.1"], "127.0.0.2"),
        ] {
            let [one, two, three] = same;
            let held = (admit(&limiter, one).unwrap(), admit(&limiter, two).unwrap());
            assert!(admit(&limiter, three).is_none(), "{three}");
            assert!(admit(&limiter, other).is_some(), "{other}");
            drop(held);
            assert!(admit(&limiter, three).is_some(), "{three}");
        }
        assert!(limiter.sources().is_empty(), "an address without connections has no entry");
        let proxied: Vec<_> = (0..9).map(|_| admit(&limiter, "10.0.0.1").unwrap()).collect();
        assert_eq!((proxied.len(), limiter.sources().len()), (9, 0));
    }

    #[tokio::test]
    async fn handshakes_of_one_address_wait_for_each_other() {
        use futures_util::FutureExt;
        let limiter = limiter(9);
        let [one, two, other] =
            ["192.0.2.1", "192.0.2.1", "192.0.2.2"].map(|address| admit(&limiter, address).unwrap());
        let held = one.handshake().await;
        assert!(two.handshake().now_or_never().is_none());
        assert!(other.handshake().now_or_never().is_some());
        drop(held);
        assert!(two.handshake().now_or_never().is_some());
    }
}
