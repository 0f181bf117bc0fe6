//! Whose turn it is among accounts that wait for the same few permits.
//!
//! The account that holds the fewest comes first, and among those the one that was served longest ago. So an account with any number of
//! waiting requests delays one of another account by at most one of its own.

use std::collections::BTreeMap;

/// Accounts that are remembered. The one that was served longest ago is forgotten first, which makes it the next one.
const MAX_ACCOUNTS: usize = 10_000;

/// When each account was served last.
#[derive(Debug, Default)]
pub struct Turns {
    served: BTreeMap<String, u64>,
    last: u64,
}

impl Turns {
    /// The next account of those that wait, each with the number of permits that it holds.
    pub fn next<'a>(&self, waiting: impl IntoIterator<Item = (&'a str, usize)>) -> Option<&'a str> {
        let served_at = |account: &str| self.served.get(account).copied();
        let next = waiting.into_iter().min_by_key(|(account, held)| (*held, served_at(account)));
        next.map(|(account, _)| account)
    }

    /// The account was served.
    pub fn served(&mut self, account: &str) {
        self.last += 1;
        if let Some(at) = self.served.get_mut(account) {
            *at = self.last;
            return;
        }
        if self.served.len() >= MAX_ACCOUNTS
            && let Some(oldest) =
                self.served.iter().min_by_key(|(_, at)| **at).map(|(account, _)| account.clone())
        {
            self.served.remove(&oldest);
        }
        self.served.insert(account.to_owned(), self.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order in which requests are served one after another, each `(when, account)` in the order of their times.
    fn order(requests: &[(usize, &'static str)]) -> Vec<&'static str> {
        let (mut turns, mut waiting, mut order) = (Turns::default(), BTreeMap::new(), Vec::new());
        for now in 0.. {
            for (_, account) in requests.iter().filter(|(at, _)| *at == now) {
                *waiting.entry(*account).or_insert(0) += 1;
            }
            let Some(next) = turns.next(waiting.keys().map(|account| (*account, 0))) else { break };
            turns.served(next);
            order.push(next);
            waiting.entry(next).and_modify(|count| *count -= 1);
            waiting.retain(|_, count| *count > 0);
        }
        order
    }

    #[test]
    fn many_requests_delay_another_account_by_at_most_one() {
        let mut requests = vec![(0, "many"); 1000];
        requests.extend([(3, "few"), (3, "few"), (4, "other"), (900, "few")]);
        let order = order(&requests);
        assert_eq!(order[..8], ["many", "many", "many", "few", "other", "many", "few", "many"]);
        // It was served long ago, so it does not wait for the other.
        assert_eq!((order[900], order.len()), ("few", 1004));
    }

    #[test]
    fn an_account_that_asks_again_and_again_does_not_starve_another() {
        let mut requests: Vec<_> = (0..20).map(|at| (at, "again")).collect();
        requests.extend([(5, "once"), (5, "once")]);
        let order = order(&requests);
        let at: Vec<usize> = (0..order.len()).filter(|at| order[*at] == "once").collect();
        assert_eq!(at, [5, 7]);
    }

    #[test]
    fn who_holds_less_comes_first() {
        let mut turns = Turns::default();
        for account in ["two", "one"] {
            turns.served(account);
        }
        assert_eq!(turns.next([("one", 1), ("two", 2), ("two", 2)]), Some("one"));
        assert_eq!(turns.next([("one", 1), ("two", 1)]), Some("two"));
        assert_eq!(turns.next([("one", 1), ("new", 1)]), Some("new"));
        assert_eq!(turns.next([]), None);
    }

    #[test]
    fn a_bounded_number_of_accounts_is_remembered() {
        let mut turns = Turns::default();
        for number in 0..=MAX_ACCOUNTS {
            turns.served(&format!("{number}"));
        }
        assert_eq!(turns.served.len(), MAX_ACCOUNTS);
        assert_eq!(turns.next([("1", 0), ("0", 0)]), Some("0"));
    }
}
