//! The permits of builds: how many run at a time, on the host and of one account.
//!
//! ```text
//! BuildPermits::acquire --> BuildPermit for steps --exchange_for_start--> BuildPermit for a start command --> dropped
//! ```
//!
//! A build whose steps are done waits for its start command, up to minutes and mostly idle. It returns its permit for steps before
//! it waits, so builds that become ready late, or never, do not delay the steps of others. Nothing fails.

use permits::{SharedPermit, SharedPermits};
use tokio::sync::{Mutex, MutexGuard};

/// Builds that may wait for their start commands, for each that may run steps.
const STARTS_PER_STEP: usize = 4;

/// Shared by all builds of the host.
pub struct BuildPermits {
    /// Half of them for each account, so that none delays the builds of others.
    steps: SharedPermits,
    starts: SharedPermits,
    /// Held by a build that daemons have ended during: those run one at a time, so that only the cause is interrupted again.
    suspect: Mutex<()>,
}

/// What a build may do now. Dropping it makes room for another one.
pub struct BuildPermit<'a> {
    all: &'a BuildPermits,
    shared: Option<SharedPermit>,
    _alone: Option<MutexGuard<'a, ()>>,
}

impl BuildPermits {
    /// `concurrent` builds may run steps at a time.
    pub fn new(concurrent: usize) -> Self {
        let starts = concurrent.saturating_mul(STARTS_PER_STEP);
        Self {
            steps: SharedPermits::new(concurrent, concurrent.div_ceil(2)),
            starts: SharedPermits::new(starts, starts.div_ceil(2)),
            suspect: Mutex::default(),
        }
    }

    /// Waits until a build of the account may run its steps.
    pub async fn acquire(&self, account: &str) -> BuildPermit<'_> {
        BuildPermit { all: self, shared: Some(self.steps.acquire(account).await), _alone: None }
    }

    /// As [`Self::acquire`], and until no other build has a permit of this kind.
    pub async fn acquire_alone(&self, account: &str) -> BuildPermit<'_> {
        let alone = Some(self.suspect.lock().await);
        BuildPermit { all: self, shared: Some(self.steps.acquire(account).await), _alone: alone }
    }
}

impl BuildPermit<'_> {
    /// Returns the permit for steps, and waits until the build may run its start command.
    pub async fn exchange_for_start(&mut self, account: &str) {
        drop(self.shared.take());
        self.shared = Some(self.all.starts.acquire(account).await);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn waits<T>(work: impl Future<Output = T>) -> bool {
        tokio::time::timeout(Duration::from_millis(50), work).await.is_err()
    }

    #[tokio::test]
    async fn a_build_that_waits_for_its_start_leaves_its_permit_to_others() {
        let permits = BuildPermits::new(2);
        let mut starting = Vec::new();
        // Of one account, one build runs steps at a time.
        for _ in 0..4 {
            let mut permit = permits.acquire("one").await;
            assert!(waits(permits.acquire("one")).await);
            permit.exchange_for_start("one").await;
            starting.push(permit);
        }
        // The next one waits for its start, and its permit for steps is free nevertheless.
        let mut next = permits.acquire("one").await;
        assert!(waits(next.exchange_for_start("one")).await);
        let _steps = permits.acquire("one").await;
        let mut of_another_account = permits.acquire("two").await;
        assert!(!waits(of_another_account.exchange_for_start("two")).await);
        starting.truncate(3);
        assert!(!waits(next.exchange_for_start("one")).await);
    }

    #[tokio::test]
    async fn suspects_run_one_after_the_other() {
        let permits = BuildPermits::new(4);
        let mut suspect = permits.acquire_alone("one").await;
        suspect.exchange_for_start("one").await;
        assert!(waits(permits.acquire_alone("two")).await);
        let _other = permits.acquire("two").await;
        drop(suspect);
        assert!(!waits(permits.acquire_alone("two")).await);
    }
}
