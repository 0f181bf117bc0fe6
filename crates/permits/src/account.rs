//! A number of permits for each account, alone or within a number for the host.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use base::IgnorePoison;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits for each account. With one, they are locks.
#[derive(Debug)]
pub struct AccountPermits {
    each: usize,
    /// Only those in use.
    accounts: Mutex<HashMap<String, Weak<Semaphore>>>,
}

impl AccountPermits {
    /// `each` permits for every account.
    pub fn new(each: usize) -> Self {
        Self { each, accounts: Mutex::default() }
    }

    fn of(&self, account: &str) -> Arc<Semaphore> {
        let mut all = self.accounts.lock().ignore_poison();
        if let Some(found) = all.get(account).and_then(Weak::upgrade) {
            return found;
        }
        all.retain(|_, semaphore| semaphore.strong_count() > 0);
        let own = Arc::new(Semaphore::new(self.each));
        all.insert(account.to_owned(), Arc::downgrade(&own));
        own
    }

    /// Waits for a permit, which is returned when it is dropped.
    pub async fn acquire(&self, account: &str) -> AccountPermit {
        // The semaphore is never closed. The permit keeps it.
        AccountPermit { _permit: self.of(account).acquire_owned().await.ok() }
    }
}

/// A permit of an account.
#[derive(Debug)]
pub struct AccountPermit {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Permits of the host, of which an account gets some at most.
#[derive(Debug)]
pub struct SharedPermits {
    accounts: AccountPermits,
    host: Arc<Semaphore>,
}

impl SharedPermits {
    /// `host` permits in all and `each` for every account; at least one of both.
    pub fn new(host: usize, each: usize) -> Self {
        Self { accounts: AccountPermits::new(each.max(1)), host: Arc::new(Semaphore::new(host.max(1))) }
    }

    /// Waits until the account and the host have a free permit.
    pub async fn acquire(&self, account: &str) -> SharedPermit {
        // The account's permit first: otherwise the waiting work of one account would fill the host's queue.
        let own = self.accounts.acquire(account).await;
        SharedPermit { _own: own, _host: Arc::clone(&self.host).acquire_owned().await.ok() }
    }
}

/// A permit of the host and of an account.
#[derive(Debug)]
pub struct SharedPermit {
    _own: AccountPermit,
    _host: Option<OwnedSemaphorePermit>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn waits<T>(work: impl Future<Output = T>) -> bool {
        tokio::time::timeout(Duration::from_millis(50), work).await.is_err()
    }

    #[tokio::test]
    async fn an_account_gets_its_share_and_leaves_the_rest() {
        let permits = SharedPermits::new(3, 2);
        let held = (permits.acquire("one").await, permits.acquire("one").await);
        assert!(waits(permits.acquire("one")).await);
        let other = permits.acquire("two").await;
        assert!(waits(permits.acquire("three")).await);
        drop(other);
        let _third = permits.acquire("three").await;
        drop(held);
        let _again = permits.acquire("one").await;
    }

    #[tokio::test]
    async fn accounts_that_hold_nothing_are_forgotten() {
        let permits = AccountPermits::new(1);
        for number in 0..100 {
            drop(permits.acquire(&format!("account {number}")).await);
        }
        assert_eq!(permits.accounts.lock().unwrap().len(), 1);
    }
}
