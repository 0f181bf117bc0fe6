//! Limits of one sandbox's use of the DNS server.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base::IgnorePoison;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Questions of all sandboxes in progress.
pub const ANSWERING_MAX_OF_ALL: usize = 2048;
/// Questions of one sandbox in progress. Enough for a program that looks up a hundred names at once, each for two types.
const ANSWERING_MAX: usize = 256;
/// The same while half of the total is in use: a few sandboxes with unanswered questions must leave room for others.
const ANSWERING_MAX_CROWDED: usize = 32;
/// Connections of all sandboxes.
pub const CONNECTIONS_MAX_OF_ALL: usize = 512;
/// Connections of one sandbox.
const CONNECTIONS_MAX: usize = 16;
/// The same while half of the total is in use: a sandbox with more gets no new one, and its quiet ones are closed.
const CONNECTIONS_MAX_CROWDED: usize = 2;
/// Messages per second, sustained.
const RATE: f64 = 500.0;
/// Burst of messages.
const BURST: f64 = 2000.0;

/// The use by one sandbox.
pub struct SandboxLimits {
    answering: Arc<Semaphore>,
    connections: Arc<Semaphore>,
    bucket: Mutex<Bucket>,
}

struct Bucket {
    left: f64,
    at: Instant,
}

/// Permit for one question in progress.
pub type QuestionPermit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// Permit for one connection.
pub type ConnectionPermit = (OwnedSemaphorePermit, OwnedSemaphorePermit);

/// By address; at most as many as the pool has addresses.
#[derive(Default)]
pub struct LimitsByAddress {
    by_address: Mutex<HashMap<Ipv4Addr, Arc<SandboxLimits>>>,
}

impl LimitsByAddress {
    /// The limits of the sandbox at this address.
    pub fn of(&self, address: Ipv4Addr) -> Arc<SandboxLimits> {
        let mut limits = self.by_address.lock().ignore_poison();
        Arc::clone(limits.entry(address).or_insert_with(|| Arc::new(SandboxLimits::new())))
    }
}

impl SandboxLimits {
    fn new() -> Self {
        Self {
            answering: Arc::new(Semaphore::new(ANSWERING_MAX)),
            connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            bucket: Mutex::new(Bucket { left: BURST, at: super::now() }),
        }
    }

    /// A permit for one more question, if there is one.
    pub fn question_permit(&self, all: &Arc<Semaphore>) -> Option<QuestionPermit> {
        let own = Arc::clone(&self.answering).try_acquire_owned().ok()?;
        let in_use = ANSWERING_MAX - self.answering.available_permits();
        let is_crowded = all.available_permits() < ANSWERING_MAX_OF_ALL / 2;
        if is_crowded && in_use > ANSWERING_MAX_CROWDED {
            return None;
        }
        Some((own, Arc::clone(all).try_acquire_owned().ok()?))
    }

    /// A permit for one more connection, if there is one.
    pub fn connection_permit(&self, all: &Arc<Semaphore>) -> Option<ConnectionPermit> {
        let own = Arc::clone(&self.connections).try_acquire_owned().ok()?;
        // The new one is included.
        if self.must_close_idle(all) {
            return None;
        }
        Some((own, Arc::clone(all).try_acquire_owned().ok()?))
    }

    /// Whether it has so many connections that idle ones must be closed.
    pub fn must_close_idle(&self, all: &Semaphore) -> bool {
        let in_use = CONNECTIONS_MAX - self.connections.available_permits();
        let is_crowded = all.available_permits() < CONNECTIONS_MAX_OF_ALL / 2;
        is_crowded && in_use > CONNECTIONS_MAX_CROWDED
    }

    /// Whether one more message is within the rate.
    pub fn is_within_rate(&self, now: Instant) -> bool {
        let mut bucket = self.bucket.lock().ignore_poison();
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        bucket.at = now;
        bucket.left = (bucket.left + passed * RATE).min(BURST);
        let enough = bucket.left >= 1.0;
        if enough {
            bucket.left -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn questions_of_a_few_sandboxes_leave_permits_for_others() {
        let all = Arc::new(Semaphore::new(ANSWERING_MAX_OF_ALL));
        let take_all =
            |limits: &SandboxLimits| std::iter::from_fn(|| limits.question_permit(&all)).collect::<Vec<_>>();
        let greedy: Vec<SandboxLimits> = (0..20).map(|_| SandboxLimits::new()).collect();
        let in_use: Vec<Vec<QuestionPermit>> = greedy.iter().map(take_all).collect();
        assert!(in_use[..4].iter().all(|permits| permits.len() == ANSWERING_MAX));
        assert!(in_use[5..].iter().all(|permits| permits.len() == ANSWERING_MAX_CROWDED));
        let late = SandboxLimits::new();
        assert_eq!(take_all(&late).len(), ANSWERING_MAX_CROWDED);
        drop(in_use);
        assert_eq!(take_all(&late).len(), ANSWERING_MAX);
    }

    #[test]
    fn idle_connections_above_the_crowded_limit_must_close() {
        let all = Arc::new(Semaphore::new(CONNECTIONS_MAX_OF_ALL));
        let take_all = |limits: &SandboxLimits| {
            std::iter::from_fn(|| limits.connection_permit(&all)).collect::<Vec<_>>()
        };
        let greedy: Vec<SandboxLimits> = (0..32).map(|_| SandboxLimits::new()).collect();
        let mut in_use: Vec<Vec<ConnectionPermit>> = greedy.iter().map(take_all).collect();
        assert!(in_use[..16].iter().all(|permits| permits.len() == CONNECTIONS_MAX));
        assert!(in_use[17..].iter().all(|permits| permits.len() == CONNECTIONS_MAX_CROWDED));
        assert!(greedy[0].must_close_idle(&all) && !greedy[20].must_close_idle(&all));
        let late = SandboxLimits::new();
        assert_eq!(take_all(&late).len(), CONNECTIONS_MAX_CROWDED);
        in_use[0].truncate(CONNECTIONS_MAX_CROWDED);
        assert!(!greedy[0].must_close_idle(&all));
        drop(in_use);
        assert_eq!(take_all(&late).len(), CONNECTIONS_MAX);
        assert!(!late.must_close_idle(&all), "the total is no longer crowded");
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let (limits, start) = (SandboxLimits::new(), Instant::now());
        let accepted = |at| (0..10_000).filter(|_| limits.is_within_rate(at)).count();
        assert_eq!(accepted(start), BURST as usize);
        assert_eq!(accepted(start + Duration::from_secs(1)), RATE as usize);
        assert_eq!(accepted(start + Duration::from_secs(3600)), BURST as usize);
    }
}
