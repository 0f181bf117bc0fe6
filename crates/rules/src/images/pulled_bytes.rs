//! How much each account may pull from registries in a day.

use std::collections::BTreeMap;

use crate::{ReachedLimit, TimeMs};

const DAY_MS: u64 = 24 * 3600 * 1000;
const COUNTS: &str = "bytes of images that an account pulls in a day (UTC)";
const KEY: &str = "images.pull_bytes_per_day";

/// What accounts have pulled on one day, in UTC.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PulledBytes {
    day: u64,
    accounts: BTreeMap<String, u64>,
}

/// An account has pulled as much as it may on this day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PullQuotaReached {
    pub allowed: u64,
    /// Until the next day.
    pub retry_after_s: u64,
}

impl PullQuotaReached {
    /// The limit that refuses.
    #[must_use]
    pub fn limit(&self) -> ReachedLimit {
        ReachedLimit::set_by_operator(self.allowed, COUNTS, KEY)
    }
}

impl PulledBytes {
    /// What was pulled on the day of a time.
    #[must_use]
    pub fn stored(at: TimeMs, accounts: BTreeMap<String, u64>) -> Self {
        Self { day: day(at), accounts }
    }

    /// The numbers of the day, to be stored.
    #[must_use]
    pub fn accounts(&self) -> &BTreeMap<String, u64> {
        &self.accounts
    }

    /// Whether the account may pull so many bytes more. An `allowed` of 0 is unlimited.
    pub fn check(
        &self,
        account: &str,
        bytes: u64,
        allowed: u64,
        now: TimeMs,
    ) -> Result<(), PullQuotaReached> {
        let used = if self.day == day(now) { self.accounts.get(account).copied().unwrap_or(0) } else { 0 };
        if allowed == 0 || used.saturating_add(bytes) <= allowed {
            return Ok(());
        }
        let left_ms = DAY_MS - now.0 % DAY_MS;
        Err(PullQuotaReached { allowed, retry_after_s: left_ms.div_ceil(1000) })
    }

    /// Counts bytes that the account pulls. A refusal changes nothing.
    pub fn take(
        &mut self,
        account: &str,
        bytes: u64,
        allowed: u64,
        now: TimeMs,
    ) -> Result<(), PullQuotaReached> {
        self.check(account, bytes, allowed, now)?;
        if self.day != day(now) {
            *self = Self { day: day(now), accounts: BTreeMap::new() };
        }
        match self.accounts.get_mut(account) {
            Some(used) => *used = used.saturating_add(bytes),
            None => drop(self.accounts.insert(account.to_owned(), bytes)),
        }
        Ok(())
    }
}

fn day(at: TimeMs) -> u64 {
    at.0 / DAY_MS
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: TimeMs = TimeMs(100 * DAY_MS + DAY_MS / 2);

    #[test]
    fn an_account_pulls_up_to_its_quota_and_leaves_others_theirs() {
        let mut pulled = PulledBytes::default();
        assert_eq!(pulled.take("one", 60, 100, NOON), Ok(()));
        let refused = pulled.take("one", 41, 100, NOON).unwrap_err();
        assert_eq!(refused, PullQuotaReached { allowed: 100, retry_after_s: 12 * 3600 });
        assert!(refused.limit().to_string().contains("images.pull_bytes_per_day"));
        // The refusal was not counted.
        assert_eq!(pulled.take("one", 40, 100, NOON), Ok(()));
        assert!(pulled.take("one", 1, 100, NOON).is_err());
        assert_eq!(pulled.take("two", 100, 100, NOON), Ok(()));
    }

    #[test]
    fn a_new_day_begins_with_nothing() {
        let mut pulled = PulledBytes::default();
        pulled.take("one", 100, 100, NOON).unwrap();
        let last = TimeMs(101 * DAY_MS - 1);
        assert_eq!(
            pulled.check("one", 1, 100, last),
            Err(PullQuotaReached { allowed: 100, retry_after_s: 1 })
        );
        let tomorrow = TimeMs(101 * DAY_MS);
        assert_eq!(pulled.take("one", 100, 100, tomorrow), Ok(()));
        assert_eq!(pulled.accounts().get("one"), Some(&100));
    }

    #[test]
    fn numbers_of_a_former_day_do_not_count() {
        let accounts = BTreeMap::from([("one".to_owned(), 100)]);
        let pulled = PulledBytes::stored(NOON, accounts);
        assert!(pulled.check("one", 1, 100, NOON).is_err());
        assert!(pulled.check("one", 1, 100, TimeMs(NOON.0 + DAY_MS)).is_ok());
    }

    #[test]
    fn zero_is_unlimited() {
        let mut pulled = PulledBytes::default();
        assert_eq!(pulled.take("one", u64::MAX, 0, NOON), Ok(()));
        assert_eq!(pulled.take("one", u64::MAX, 0, NOON), Ok(()));
    }
}
