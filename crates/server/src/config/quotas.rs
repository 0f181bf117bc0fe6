//! `[quotas]`: its settings, and the table of them that the engine, the store and the layers use.

use std::collections::BTreeMap;

use rules::{OwnQuotas, Quota, QuotaTable, StoredQuotas};
use serde::{Deserialize, Serialize};

use super::bounds::within;
use super::problems::Problems;

const MOST: u64 = 1 << 40;

/// Quotas of one account. 0 is unlimited.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Quotas {
    pub sandboxes: u64,
    pub vcpus: u64,
    pub memory_mb: u64,
    pub disk_mb: u64,
    pub snapshots: u64,
    pub snapshots_mb: u64,
    pub templates: u64,
    pub execution_logs_mb: u64,
    /// Above one of these three the oldest records are evicted.
    pub idempotency_mb: u64,
    pub events_mb: u64,
    pub posted_events_mb: u64,
    pub connections: u64,
    pub streams: u64,
    /// For single accounts, by name.
    pub accounts: BTreeMap<String, AccountQuotas>,
}

/// The quotas of one account; absent ones are those of every account.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AccountQuotas {
    pub sandboxes: Option<u64>,
    pub vcpus: Option<u64>,
    pub memory_mb: Option<u64>,
    pub disk_mb: Option<u64>,
    pub snapshots: Option<u64>,
    pub snapshots_mb: Option<u64>,
    pub templates: Option<u64>,
    pub execution_logs_mb: Option<u64>,
    pub idempotency_mb: Option<u64>,
    pub events_mb: Option<u64>,
    pub posted_events_mb: Option<u64>,
    pub connections: Option<u64>,
    pub streams: Option<u64>,
}

impl Default for Quotas {
    /// Unlimited for resources of sandboxes, so that a single account is limited only by the host's capacity. Stored records are
    /// bounded, because nothing else deletes them, and connections leave half of `http.max_connections` to other accounts.
    fn default() -> Self {
        Self {
            sandboxes: 0,
            vcpus: 0,
            memory_mb: 0,
            disk_mb: 0,
            snapshots: 1_000,
            snapshots_mb: 0,
            templates: 1_000,
            execution_logs_mb: 0,
            idempotency_mb: 256,
            events_mb: 256,
            posted_events_mb: 256,
            connections: 5_000,
            streams: 2_000,
            accounts: BTreeMap::new(),
        }
    }
}

impl Quotas {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let all = self.values().into_iter().map(|(key, value)| (format!("quotas.{key}"), value));
        let of_accounts = self.accounts.iter().flat_map(|(name, own)| {
            let values = own.values().into_iter().filter_map(|(key, value)| Some((key, value?)));
            values.map(move |(key, value)| (format!("quotas.accounts.\"{name}\".{key}"), value))
        });
        Problems::of(all.chain(of_accounts).map(|(key, value)| within(&key, value, 0, MOST)))
    }

    fn values(&self) -> [(&'static str, u64); 13] {
        [
            ("sandboxes", self.sandboxes),
            ("vcpus", self.vcpus),
            ("memory_mb", self.memory_mb),
            ("disk_mb", self.disk_mb),
            ("snapshots", self.snapshots),
            ("snapshots_mb", self.snapshots_mb),
            ("templates", self.templates),
            ("execution_logs_mb", self.execution_logs_mb),
            ("idempotency_mb", self.idempotency_mb),
            ("events_mb", self.events_mb),
            ("posted_events_mb", self.posted_events_mb),
            ("connections", self.connections),
            ("streams", self.streams),
        ]
    }

    /// Every account's quotas.
    pub fn table(&self) -> QuotaTable {
        let accounts = self.accounts.iter().map(|(name, own)| {
            let quotas = rules::Quotas { own: Some(own.named(name).into()), ..self.with(own).quotas() };
            (name.clone(), quotas)
        });
        QuotaTable { default: self.quotas(), accounts: accounts.collect() }
    }

    /// The settings that hold for an account, by name. 0 is unlimited.
    pub fn of_account(&self, name: &str) -> BTreeMap<&'static str, u64> {
        let values = match self.accounts.get(name) {
            Some(own) => self.with(own).values(),
            None => self.values(),
        };
        values.into()
    }

    /// Overridden by those of one account.
    fn with(&self, own: &AccountQuotas) -> Self {
        Self {
            sandboxes: own.sandboxes.unwrap_or(self.sandboxes),
            vcpus: own.vcpus.unwrap_or(self.vcpus),
            memory_mb: own.memory_mb.unwrap_or(self.memory_mb),
            disk_mb: own.disk_mb.unwrap_or(self.disk_mb),
            snapshots: own.snapshots.unwrap_or(self.snapshots),
            snapshots_mb: own.snapshots_mb.unwrap_or(self.snapshots_mb),
            templates: own.templates.unwrap_or(self.templates),
            execution_logs_mb: own.execution_logs_mb.unwrap_or(self.execution_logs_mb),
            idempotency_mb: own.idempotency_mb.unwrap_or(self.idempotency_mb),
            events_mb: own.events_mb.unwrap_or(self.events_mb),
            posted_events_mb: own.posted_events_mb.unwrap_or(self.posted_events_mb),
            connections: own.connections.unwrap_or(self.connections),
            streams: own.streams.unwrap_or(self.streams),
            accounts: Default::default(),
        }
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
    fn values(&self) -> [(&'static str, Option<u64>); 13] {
        [
            ("sandboxes", self.sandboxes),
            ("vcpus", self.vcpus),
            ("memory_mb", self.memory_mb),
            ("disk_mb", self.disk_mb),
            ("snapshots", self.snapshots),
            ("snapshots_mb", self.snapshots_mb),
            ("templates", self.templates),
            ("execution_logs_mb", self.execution_logs_mb),
            ("idempotency_mb", self.idempotency_mb),
            ("events_mb", self.events_mb),
            ("posted_events_mb", self.posted_events_mb),
            ("connections", self.connections),
            ("streams", self.streams),
        ]
    }

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
