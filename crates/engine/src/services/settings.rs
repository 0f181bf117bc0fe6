//! The settings of an engine. What only one part of it uses is declared there.

use std::collections::BTreeMap;
use std::time::Duration;

use rules::{Capacity, Prices, QuotaTable};

use crate::background::purge::Retention;
use crate::capacity::host_watch::HostWatch;
use crate::capacity::provision::warm_pool::{PoolKey, PoolTarget};
use crate::detached::DetachedSettings;

/// Settings of an [`crate::Engine`].
#[derive(Debug, Clone)]
pub struct EngineSettings {
    pub capacity: Capacity,
    pub quotas: QuotaTable,
    /// The host watcher's configuration; if `None`, only reserved capacity limits what is admitted.
    pub host: Option<HostWatch>,
    pub pool: BTreeMap<PoolKey, PoolTarget>,
    /// Attached commands that may run at a time in one sandbox, and detached commands and terminals.
    pub concurrent_executions: u32,
    pub detached_executions: u32,
    /// Commands of each kind that may wait.
    pub execution_queue: u32,
    /// Paused sandboxes are terminated after this time; 0 for never.
    pub paused_retention_ms: u64,
    /// The processes of sandboxes that stay paused this long are stored on the disk; 0 for never.
    pub hibernate_after_ms: u64,
    /// Terminated sandboxes and their events are deleted after this time; 0 for never.
    pub terminated_retention_ms: u64,
    /// The oldest terminated sandboxes of an account whose records have more bytes than this are deleted earlier; 0 for never.
    pub terminated_bytes: u64,
    /// Snapshots are deleted after this time; 0 for never.
    pub snapshot_retention_ms: u64,
    /// The number of ranges of host user ids.
    pub slots: u32,
    /// Prices of running time. No cost events are recorded if everything is free.
    pub prices: Prices,
    pub detached: DetachedSettings,
    /// The interval of the resource samples; `None` takes none.
    pub sample_interval: Option<Duration>,
}

impl EngineSettings {
    pub fn retention(&self) -> Retention {
        Retention {
            terminated: self.terminated_retention_ms,
            terminated_bytes: self.terminated_bytes,
            snapshots: self.snapshot_retention_ms,
        }
    }
}
