//! Permits of the host, which accounts get in turn (`rules::Turns`). An account that is alone gets all.
//!
//! A caller that stops waiting leaves nothing behind: its place is skipped, and a permit that was on its way to it goes to the next one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::IgnorePoison;
use rules::Turns;
use tokio::sync::oneshot;

/// A number of permits of the host.
#[derive(Debug)]
pub struct TurnPermits {
    shared: Arc<PermitPool>,
}

#[derive(Debug)]
struct PermitPool {
    state: Mutex<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    free: usize,
    /// Accounts that hold permits or wait for some.
    accounts: BTreeMap<String, Account>,
    turns: Turns,
}

#[derive(Debug, Default)]
struct Account {
    held: usize,
    waiting: VecDeque<oneshot::Sender<TurnPermit>>,
}

/// A permit of an account. Dropping it returns it.
#[derive(Debug)]
pub struct TurnPermit {
    shared: Arc<PermitPool>,
    account: String,
}

impl TurnPermits {
    /// So many permits for all accounts; at least one.
    pub fn new(count: usize) -> Self {
        let state = PoolState { free: count.max(1), accounts: BTreeMap::new(), turns: Turns::default() };
        Self { shared: Arc::new(PermitPool { state: Mutex::new(state) }) }
    }

    /// Waits for the turn of the account.
    pub async fn acquire(&self, account: &str) -> Option<TurnPermit> {
        let (sender, permit) = oneshot::channel();
        self.shared.lock().accounts.entry(account.to_owned()).or_default().waiting.push_back(sender);
        self.shared.hand_out();
        // A sender is dropped only when its receiver is gone.
        permit.await.ok()
    }
}

impl PermitPool {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        // Every change under the lock is complete before anything can panic.
        self.state.lock().ignore_poison()
    }

    /// Gives free permits to those whose turn it is.
    fn hand_out(self: &Arc<Self>) {
        loop {
            let Some((account, sender)) = self.lock().take_next() else { return };
            // Not under the lock: a permit that nobody receives any more is returned here.
            drop(sender.send(TurnPermit { shared: Arc::clone(self), account }));
        }
    }
}

impl PoolState {
    /// Counts a permit for the account whose turn it is.
    fn take_next(&mut self) -> Option<(String, oneshot::Sender<TurnPermit>)> {
        if self.free == 0 {
            return None;
        }
        for account in self.accounts.values_mut() {
            account.waiting.retain(|sender| !sender.is_closed());
        }
        self.accounts.retain(|_, account| account.held > 0 || !account.waiting.is_empty());
        let waiting = self.accounts.iter().filter(|(_, account)| !account.waiting.is_empty());
        let next = self.turns.next(waiting.map(|(name, account)| (name.as_str(), account.held)))?.to_owned();
        let account = self.accounts.get_mut(&next)?;
        let sender = account.waiting.pop_front()?;
        account.held += 1;
        self.free -= 1;
        self.turns.served(&next);
        Some((next, sender))
    }
}

impl Drop for TurnPermit {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.free += 1;
            if let Some(account) = state.accounts.get_mut(&self.account) {
                account.held -= 1;
            }
        }
        self.shared.hand_out();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Starts a transfer that takes a second, and notes its account when it begins.
    fn transfer(
        permits: &Arc<TurnPermits>,
        account: &'static str,
        begun: &Arc<Mutex<Vec<&'static str>>>,
    ) -> tokio::task::JoinHandle<()> {
        let (permits, begun) = (Arc::clone(permits), Arc::clone(begun));
        tokio::spawn(async move {
            let permit = permits.acquire(account).await;
            begun.lock().unwrap().push(account);
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(permit);
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_waiting_transfers_delay_another_account_by_one() {
        let (permits, begun) = (Arc::new(TurnPermits::new(2)), Arc::default());
        let many: Vec<_> = (0..1000).map(|_| transfer(&permits, "many", &begun)).collect();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        let few: Vec<_> = (0..3).map(|_| transfer(&permits, "few", &begun)).collect();
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert_eq!(begun.lock().unwrap()[..], ["many", "many", "many", "many", "few", "many"]);
        for task in few {
            task.await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        // Each had a half, and an account that is alone has all.
        assert_eq!(begun.lock().unwrap().len(), 4 + 2 * 3 + 2);
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(begun.lock().unwrap().len(), 4 + 2 * 3 + 2 + 2 * 9);
        many.iter().for_each(tokio::task::JoinHandle::abort);
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_takes_no_permit() {
        let (permits, begun) = (Arc::new(TurnPermits::new(1)), Arc::default());
        let first = transfer(&permits, "one", &begun);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let gone: Vec<_> = (0..100).map(|_| transfer(&permits, "two", &begun)).collect();
        let last = transfer(&permits, "one", &begun);
        tokio::time::sleep(Duration::from_millis(100)).await;
        gone.iter().for_each(tokio::task::JoinHandle::abort);
        first.await.unwrap();
        last.await.unwrap();
        assert_eq!(begun.lock().unwrap()[..], ["one", "one"]);
        let state = permits.shared.lock();
        assert_eq!((state.free, state.accounts.len()), (1, 0));
    }
}
