//! `[quotas]`: its settings, and the table of them that the engine, the store and the layers use.

use std::collections::BTreeMap;

use rules::{OwnQuotas, Quota, QuotaTable, StoredQuotas};

use super::declare::{ANY_AMOUNT, DeclaredKey, table};

// The defaults are unlimited for resources of sandboxes, so that a single account is limited only by the host's capacity. Stored records
// are bounded, because nothing else deletes them, and connections leave half of `http.max_connections` to other accounts.
table! {
    /// Quotas of one account. `0` is unlimited. A request that exceeds a quota gets `429 QUOTA_EXCEEDED`; for stored events and
    /// responses, the oldest are evicted instead.
    pub struct Quotas {
        #[optional_in(AccountQuotas)] {
            /// Sandboxes that are not terminated, paused ones included.
            sandboxes: u64 = 0, "count" in ANY_AMOUNT;
            /// vCPUs of running sandboxes.
            vcpus: u64 = 0, "vCPUs" in ANY_AMOUNT;
            /// Memory of running sandboxes.
            memory_mb: u64 = 0, "MB" in ANY_AMOUNT;
            /// Disks of sandboxes that are not terminated, copies below forks, deleted snapshots that are still needed, and
            /// stored processes.
            disk_mb: u64 = 0, "MB" in ANY_AMOUNT;
            /// Snapshots.
            snapshots: u64 = 1_000, "snapshots" in ANY_AMOUNT;
            /// Disk space of snapshots, of the steps of templates, of copies below forks, and of deleted snapshots that are
            /// still needed. What a snapshot shares with the image and with other snapshots is not counted twice.
            snapshots_mb: u64 = 0, "MB" in ANY_AMOUNT;
            /// Templates, those that are built and failed builds included.
            templates: u64 = 1_000, "count" in ANY_AMOUNT;
            /// Logs of detached executions. Above the quota no further detached execution starts.
            execution_logs_mb: u64 = 0, "MB" in ANY_AMOUNT;
            /// Stored responses to requests with an `Idempotency-Key`, compressed. Above the quota the oldest are evicted; a
            /// repetition of such a request is then executed again.
            idempotency_mb: u64 = 256, "MB" in ANY_AMOUNT;
            /// Stored events of the service. Above the quota the oldest are evicted.
            events_mb: u64 = 256, "MB" in ANY_AMOUNT;
            /// Stored events that clients posted. Above the quota the oldest are evicted.
            posted_events_mb: u64 = 256, "MB" in ANY_AMOUNT;
            /// Requests in flight, streams included.
            connections: u64 = 5_000, "count" in ANY_AMOUNT;
            /// Event streams, output streams and attached terminals.
            streams: u64 = 2_000, "count" in ANY_AMOUNT;
        }
        /// Quotas of single accounts, as `[quotas.accounts."NAME"]` with any of the keys above. A name that no key has is a
        /// warning.
        accounts: BTreeMap<String, AccountQuotas>, "tables";
    }
}

impl Quotas {
    /// Every account's quotas.
    pub fn table(&self) -> QuotaTable {
        let all = Self { accounts: BTreeMap::new(), ..self.clone() };
        let accounts = self.accounts.iter().map(|(name, own)| {
            let quotas = rules::Quotas { own: Some(own.named(name).into()), ..own.over(&all).quotas() };
            (name.clone(), quotas)
        });
        QuotaTable { default: self.quotas(), accounts: accounts.collect() }
    }

    /// The settings that hold for an account, by name. 0 is unlimited.
    pub fn of_account(&self, name: &str) -> BTreeMap<&'static str, u64> {
        let quotas = self.accounts.get(name).map_or_else(|| self.clone(), |own| own.over(self));
        let values = toml::Table::try_from(quotas).unwrap_or_default();
        let number =
            |key: &DeclaredKey| Some((key.name, values.get(key.name)?.as_integer()?.try_into().ok()?));
        Self::declaration().keys.iter().filter_map(number).collect()
    }

    fn quotas(&self) -> rules::Quotas {
        let count = |value: u64| (value > 0).then_some(value);
        let bytes = |megabytes: u64| count(megabytes.saturating_mul(1 << 20));
        rules::Quotas {
            sandboxes: count(self.sandboxes),
            vcpus: count(self.vcpus),
            memory_mb: count(self.memory_mb),
            disk_mb: count(self.disk_mb),
            snapshots: count(self.snapshots),
            snapshot_bytes: bytes(self.snapshots_mb),
            templates: count(self.templates),
            execution_log_bytes: bytes(self.execution_logs_mb),
            connections: count(self.connections),
            streams: count(self.streams),
            stored: StoredQuotas {
                idempotency_bytes: bytes(self.idempotency_mb),
                event_bytes: bytes(self.events_mb),
                posted_event_bytes: bytes(self.posted_events_mb),
            },
            own: None,
        }
    }
}

impl AccountQuotas {
    /// Which of the quotas that refuse it has.
    fn named(&self, account: &str) -> OwnQuotas {
        let all = [
            (Quota::Sandboxes, self.sandboxes),
            (Quota::Vcpus, self.vcpus),
            (Quota::Memory, self.memory_mb),
            (Quota::Disk, self.disk_mb),
            (Quota::Snapshots, self.snapshots),
            (Quota::SnapshotBytes, self.snapshots_mb),
            (Quota::Templates, self.templates),
            (Quota::ExecutionLogs, self.execution_logs_mb),
            (Quota::Connections, self.connections),
            (Quota::Streams, self.streams),
        ];
        let quotas = all.into_iter().filter(|(_, own)| own.is_some()).map(|(quota, _)| quota).collect();
        OwnQuotas { account: account.to_owned(), quotas }
    }
}
