//! Budgets for memory that clients occupy.
//!
//! A reservation counts towards an account and towards all accounts together. If the budget is exhausted, a reservation waits for a
//! bounded time and then fails. Dropping a reservation releases it.

mod requests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::IgnorePoison;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub use requests::{FREE_BYTES, GrowingBody, RequestMemory};

/// Bytes of memory for all accounts together, of which one account gets at most a part.
pub struct MemoryBudget {
    all: Arc<Semaphore>,
    account_bytes: usize,
    /// One entry for each account with a key; the operator makes accounts.
    accounts: Mutex<HashMap<Arc<str>, Arc<Semaphore>>>,
    #[cfg(any(test, feature = "testing"))]
    all_bytes: usize,
}

/// The budget did not suffice in time: the part of the account, or that of all accounts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    OfAccount,
    OfAll,
}

impl MemoryBudget {
    /// `account_bytes` of one account, at most `all_bytes` of all together.
    pub fn new(all_bytes: usize, account_bytes: usize) -> Self {
        let all = Arc::new(Semaphore::new(all_bytes.min(Semaphore::MAX_PERMITS)));
        Self {
            all,
            account_bytes: account_bytes.min(Semaphore::MAX_PERMITS),
            accounts: Mutex::default(),
            #[cfg(any(test, feature = "testing"))]
            all_bytes,
        }
    }

    /// An empty reservation, which waits for at most `max_wait` in all its life.
    pub fn reservation(&self, account: &Arc<str>, max_wait: Duration) -> Reservation {
        let mut accounts = self.accounts.lock().ignore_poison();
        let of_account = match accounts.get(account) {
            Some(semaphore) => Arc::clone(semaphore),
            None => {
                let semaphore = Arc::new(Semaphore::new(self.account_bytes));
                accounts.insert(Arc::clone(account), Arc::clone(&semaphore));
                semaphore
            }
        };
        Reservation { shares: [of_account, Arc::clone(&self.all)], permits: None, max_wait }
    }

    /// For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn reserved_bytes(&self) -> usize {
        self.all_bytes - self.all.available_permits()
    }
}

/// A part of a [`MemoryBudget`].
pub struct Reservation {
    /// The permits of the account and of the total.
    shares: [Arc<Semaphore>; 2],
    permits: Option<[OwnedSemaphorePermit; 2]>,
    max_wait: Duration,
}

impl Reservation {
    /// From now on it waits for at most `max_wait`.
    pub fn set_max_wait(&mut self, max_wait: Duration) {
        self.max_wait = max_wait;
    }

    /// Adds `bytes`; waits until the budget suffices.
    pub async fn grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        if self.try_grow(bytes).is_ok() {
            return Ok(());
        }
        let count = u32::try_from(bytes).map_err(|_| Exhausted::OfAll)?;
        let began = Instant::now();
        let [account, all] = self.shares.clone();
        // What it waits for.
        let mut waits_for = Exhausted::OfAccount;
        let acquire = async {
            // The account's share first: while a client waits for its own responses it holds nothing of the others' share.
            let account = account.acquire_many_owned(count).await.ok()?;
            waits_for = Exhausted::OfAll;
            Some([account, all.acquire_many_owned(count).await.ok()?])
        };
        let acquired = tokio::time::timeout(self.max_wait, acquire).await;
        let permits = acquired.ok().flatten().ok_or(waits_for)?;
        self.max_wait = self.max_wait.saturating_sub(began.elapsed());
        self.add(permits);
        Ok(())
    }

    /// Adds `bytes` if the budget suffices.
    pub fn try_grow(&mut self, bytes: usize) -> Result<(), Exhausted> {
        let count = u32::try_from(bytes).map_err(|_| Exhausted::OfAll)?;
        let [account, all] = &self.shares;
        let account = Arc::clone(account).try_acquire_many_owned(count).map_err(|_| Exhausted::OfAccount)?;
        let all = Arc::clone(all).try_acquire_many_owned(count).map_err(|_| Exhausted::OfAll)?;
        self.add([account, all]);
        Ok(())
    }

    fn add(&mut self, [account, all]: [OwnedSemaphorePermit; 2]) {
        match &mut self.permits {
            None => self.permits = Some([account, all]),
            Some([of_account, of_all]) => {
                of_account.merge(account);
                of_all.merge(all);
            }
        }
    }
}

/// Bytes that keep a reservation until their last clone is dropped.
pub fn reserved_bytes<R: Send + 'static>(bytes: Vec<u8>, reservation: R) -> Bytes {
    Bytes::from_owner(Reserved { bytes, _reservation: reservation })
}

struct Reserved<R> {
    bytes: Vec<u8>,
    _reservation: R,
}

impl<R> AsRef<[u8]> for Reserved<R> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}
