//! `[limits]`: rate limits of keys and sandboxes, and limits of commands and their output.

use std::collections::BTreeMap;

use rules::{PER_MINUTE_MAX, RateTable, Rates};

use super::declare::table;

table! {
    /// Limits of one key and one sandbox, and of the memory for unread output. For the limits per minute, `0` is unlimited.
    /// `sandboxd serve --no-rate-limits` sets all of them to `0`. A key that was created with `--limits` has its own in place
    /// of them.
    pub struct Limits {
        #[optional_in(AccountRates)] {
            /// GET and HEAD requests of a key in any 60 seconds, except those of `operate_per_minute`.
            read_per_minute: u32 = Rates::default().read, "count" in 0..=PER_MINUTE_MAX.into();
            /// All other requests of a key in any 60 seconds, including creates, but not those of `execute_per_minute` and
            /// `operate_per_minute`. Terminations count here as long as others leave room, and are refused only after as many
            /// terminations.
            write_per_minute: u32 = Rates::default().write, "count" in 0..=PER_MINUTE_MAX.into();
            /// Creates, forks and builds of a key in any 60 seconds.
            create_per_minute: u32 = Rates::default().create, "count" in 0..=PER_MINUTE_MAX.into();
            /// Commands in one sandbox in any 60 seconds.
            execute_per_minute: u32 = Rates::default().execute, "count" in 0..=PER_MINUTE_MAX.into();
            /// Requests for files, ports, terminals, executions, code, network, timeout, events and metrics of one sandbox in
            /// any 60 seconds.
            operate_per_minute: u32 = Rates::default().operate, "count" in 0..=PER_MINUTE_MAX.into();
        }
        /// Concurrent commands in a sandbox, without detached ones.
        concurrent_executions: u32 = 3, "count" in 1..=200;
        /// Concurrent detached commands and terminals in a sandbox.
        // The agent has room for 256 commands.
        detached_executions: u32 = 32, "count" in 1..=200;
        /// Commands that wait for a slot; further ones get 429. Detached ones have a queue of the same length.
        execution_queue: u32 = 0, "count" in 0..=10_000;
        /// Bytes of stdout and of stderr in a buffered response. If the output is longer, the response has its beginning and
        /// its end, each half of this limit.
        max_output_bytes: usize = 16 << 20, "bytes" in 1024..=1 << 30;
        /// Memory for buffered output and other large responses that clients have not read yet. If a command's output does not
        /// fit, the command waits for up to 10 s, is then killed, and gets 503. A quarter is reserved for outputs of up to 64
        /// KiB. Streams do not count. The minimum is four thirds of the memory of one command with `max_output_bytes` on both
        /// streams; a lower value is raised to it.
        buffered_output_bytes: usize = 64 << 20, "bytes" in 1 << 20..=1 << 40;
        /// The part of `buffered_output_bytes` that one account can use. Raised in the same way.
        buffered_output_bytes_per_account: usize = 48 << 20, "bytes" in 1 << 20..=1 << 40;
        /// Limits per minute of single accounts, as `[limits.accounts."NAME"]` with any of the five keys. A name that no key
        /// has is a warning.
        accounts: BTreeMap<String, AccountRates>, "tables";
    }
}

impl Limits {
    /// Every account's rate limits.
    pub fn table(&self) -> RateTable {
        let all = Self { accounts: BTreeMap::new(), ..self.clone() };
        let accounts = self.accounts.iter().map(|(name, own)| (name.clone(), own.over(&all).rates()));
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
        Rates {
            read: self.read_per_minute,
            write: self.write_per_minute,
            create: self.create_per_minute,
            execute: self.execute_per_minute,
            operate: self.operate_per_minute,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ServeArguments;
    use crate::config::{Config, Problems, parse};

    fn read(text: &str) -> Limits {
        toml::from_str(text).unwrap()
    }

    fn check(limits: &Limits) -> Result<(), Problems> {
        Config { limits: limits.clone(), ..Config::default() }.check()
    }

    #[test]
    fn the_defaults_are_those_of_the_rules() {
        let limits = read("");
        assert_eq!(limits.table(), RateTable::from(Rates::default()));
        assert_eq!((limits.concurrent_executions, limits.detached_executions), (3, 32));
        check(&limits).unwrap();
    }

    #[test]
    fn an_account_overrides_single_limits() {
        let limits =
            read("create_per_minute = 5\n[accounts.\"acme\"]\nread_per_minute = 0\noperate_per_minute = 9");
        check(&limits).unwrap();
        let table = limits.table();
        let acme = Rates { read: 0, create: 5, operate: 9, ..Rates::default() };
        assert_eq!(table.of_account("acme"), acme);
        assert_eq!(table.of_account("other"), Rates { create: 5, ..Rates::default() });
        let error = check(&read("[accounts.\"acme\"]\nread_per_minute = 1000001")).unwrap_err();
        let error = format!("{error:#}");
        assert!(
            error.contains("limits.accounts.\"acme\".read_per_minute is 1000001")
                && error.contains("0 to 1000000"),
            "{error}"
        );
        // Concurrent executions are not a limit of accounts.
        assert!(parse("[limits.accounts.\"acme\"]\nconcurrent_executions = 5").is_err());
    }

    #[test]
    fn detached_executions_have_bounds() {
        for count in [0, 201] {
            let error = check(&read(&format!("detached_executions = {count}"))).unwrap_err().to_string();
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
