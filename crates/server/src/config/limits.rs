//! `[limits]`: rate limits of keys and sandboxes, and limits of commands and their output.

use std::collections::BTreeMap;

use anyhow::Result;
use rules::{PER_MINUTE_MAX, RateTable, Rates};
use serde::{Deserialize, Serialize};

use super::bounds::within;
use super::problems::Problems;

/// Limits of one key and one sandbox. Of those per minute, 0 is unlimited.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    pub read_per_minute: u32,
    pub write_per_minute: u32,
    pub create_per_minute: u32,
    /// Of one sandbox.
    pub execute_per_minute: u32,
    pub operate_per_minute: u32,
    pub concurrent_executions: u32,
    pub detached_executions: u32,
    pub execution_queue: u32,
    /// Kept of each stream of a buffered command.
    pub max_output_bytes: usize,
    /// Held in all for buffered responses that clients have not read yet.
    pub buffered_output_bytes: usize,
    pub buffered_output_bytes_per_account: usize,
    /// For single accounts, by name.
    pub accounts: BTreeMap<String, AccountRates>,
}

/// The rate limits of one account; absent ones are those of every account.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AccountRates {
    pub read_per_minute: Option<u32>,
    pub write_per_minute: Option<u32>,
    pub create_per_minute: Option<u32>,
    pub execute_per_minute: Option<u32>,
    pub operate_per_minute: Option<u32>,
}

impl Default for Limits {
    fn default() -> Self {
        let Rates { read, write, create, execute, operate } = Rates::default();
        Self {
            read_per_minute: read,
            write_per_minute: write,
            create_per_minute: create,
            execute_per_minute: execute,
            operate_per_minute: operate,
            concurrent_executions: 3,
            detached_executions: 32,
            execution_queue: 0,
            max_output_bytes: 16 << 20,
            buffered_output_bytes: 64 << 20,
            buffered_output_bytes_per_account: 48 << 20,
            accounts: BTreeMap::new(),
        }
    }
}

impl Limits {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let (all, account) = (self.buffered_output_bytes, self.buffered_output_bytes_per_account);
        let of_accounts = self.accounts.iter().flat_map(|(name, own)| {
            let values = own.values().into_iter().filter_map(|(key, value)| Some((key, value?)));
            values.map(move |(key, count)| check_rate(&format!("limits.accounts.\"{name}\".{key}"), count))
        });
        let checks = [
            check_rate("limits.read_per_minute", self.read_per_minute),
            check_rate("limits.write_per_minute", self.write_per_minute),
            check_rate("limits.create_per_minute", self.create_per_minute),
            check_rate("limits.execute_per_minute", self.execute_per_minute),
            check_rate("limits.operate_per_minute", self.operate_per_minute),
            within("limits.concurrent_executions", self.concurrent_executions.into(), 1, 200),
            // The agent has room for 256 commands.
            within("limits.detached_executions", self.detached_executions.into(), 1, 200),
            within("limits.execution_queue", self.execution_queue.into(), 0, 10_000),
            within("limits.max_output_bytes", self.max_output_bytes as u64, 1024, 1 << 30),
            within("limits.buffered_output_bytes", all as u64, 1 << 20, 1 << 40),
            within("limits.buffered_output_bytes_per_account", account as u64, 1 << 20, 1 << 40),
        ];
        Problems::of(checks.into_iter().chain(of_accounts))
    }

    /// Every account's rate limits.
    pub fn table(&self) -> RateTable {
        let accounts = self.accounts.iter().map(|(name, own)| (name.clone(), self.with(own)));
        RateTable { default: self.rates(), accounts: accounts.collect() }
    }

    /// Removes all rate limits. Keys that were created with limits of their own keep them.
    pub fn lift_rates(&mut self) {
        self.read_per_minute = 0;
        self.write_per_minute = 0;
        self.create_per_minute = 0;
        self.execute_per_minute = 0;
        self.operate_per_minute = 0;
        self.accounts.clear();
    }

    fn rates(&self) -> Rates {
        self.with(&AccountRates::default())
    }

    fn with(&self, own: &AccountRates) -> Rates {
        Rates {
            read: own.read_per_minute.unwrap_or(self.read_per_minute),
            write: own.write_per_minute.unwrap_or(self.write_per_minute),
            create: own.create_per_minute.unwrap_or(self.create_per_minute),
            execute: own.execute_per_minute.unwrap_or(self.execute_per_minute),
            operate: own.operate_per_minute.unwrap_or(self.operate_per_minute),
        }
    }
}

impl AccountRates {
    fn values(&self) -> [(&'static str, Option<u32>); 5] {
        [
            ("read_per_minute", self.read_per_minute),
            ("write_per_minute", self.write_per_minute),
            ("create_per_minute", self.create_per_minute),
            ("execute_per_minute", self.execute_per_minute),
            ("operate_per_minute", self.operate_per_minute),
        ]
    }
}

fn check_rate(key: &str, count: u32) -> Result<()> {
    within(key, count.into(), 0, PER_MINUTE_MAX.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ServeArguments;
    use crate::config::Config;

    fn read(text: &str) -> Limits {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn the_defaults_are_those_of_the_rules() {
        let limits = read("");
        assert_eq!(limits.table(), RateTable::from(Rates::default()));
        assert_eq!((limits.concurrent_executions, limits.detached_executions), (3, 32));
        limits.check().unwrap();
    }

    #[test]
    fn an_account_overrides_single_limits() {
        let limits =
            read("create_per_minute = 5\n[accounts.\"acme\"]\nread_per_minute = 0\noperate_per_minute = 9");
        limits.check().unwrap();
        let table = limits.table();
        let acme = Rates { read: 0, create: 5, operate: 9, ..Rates::default() };
        assert_eq!(table.of_account("acme"), acme);
        assert_eq!(table.of_account("other"), Rates { create: 5, ..Rates::default() });
        let error = read("[accounts.\"acme\"]\nread_per_minute = 1000001").check().unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("limits.accounts.\"acme\".read_per_minute is 1000001")
                && error.contains("0 to 1000000"),
            "{error}"
        );
        // Concurrent executions are not a limit of accounts.
        assert!(toml::from_str::<Limits>("[accounts.\"acme\"]\nconcurrent_executions = 5").is_err());
    }

    #[test]
    fn detached_executions_have_bounds() {
        for count in [0, 201] {
            let error = read(&format!("detached_executions = {count}")).check().unwrap_err().to_string();
            assert!(error.contains("limits.detached_executions") && error.contains("1 to 200"), "{error}");
        }
    }

    #[test]
    fn a_flag_lifts_every_rate_limit_and_no_other() {
        let limits = read("execution_queue = 4\n[accounts.\"acme\"]\nread_per_minute = 5");
        let config = Config { limits, ..Config::default() };
        let kept = config.clone().with_flags(&ServeArguments::default()).unwrap();
        assert_eq!(kept.limits.table().of_account("acme").read, 5);
        let flags = ServeArguments { no_rate_limits: true, ..ServeArguments::default() };
        let lifted = config.with_flags(&flags).unwrap().limits;
        assert_eq!(lifted.table(), RateTable::from(Rates::UNLIMITED));
        assert_eq!((lifted.concurrent_executions, lifted.execution_queue), (3, 4));
    }
}
