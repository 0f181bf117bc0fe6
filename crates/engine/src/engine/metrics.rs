//! The numbers that the metrics report: current numbers, and totals since the engine was opened.

use api::{Isolation, SandboxState};
use rules::{Capacity, Usage};

use crate::capacity::host_watch::{DiskState, HostWatch};
use crate::capacity::provision::warm_pool::PoolState;
use crate::counters::Counts;
use crate::counters::latency::LatencySnapshot;
use crate::host::guest;
use crate::services::Services;
use crate::snapshots::SnapshotUsage;

/// A snapshot of the numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSnapshot {
    /// Creates in progress.
    pub creating: u64,
    /// Those with an actor, by isolation.
    pub sandboxes: [(Isolation, SandboxCounts); 2],
    pub executions_running: u64,
    /// Commands that wait for an execution slot.
    pub executions_waiting: u64,
    pub pool: Vec<PoolState>,
    pub capacity: Capacity,
    pub usage: Usage,
    pub counts: Counts,
    /// How long creates, resumes and starts of commands took, by isolation.
    pub latencies: [(Isolation, LatencySnapshot); 2],
    /// Snapshots that have a record.
    pub snapshots: SnapshotUsage,
    /// Bytes of disks of snapshots without a record: below forks, and of deleted snapshots that are still needed.
    pub unrecorded_snapshot_bytes: u64,
    /// The host's disk, if it is watched.
    pub disk: Option<DiskState>,
    /// Refusals by the network, by the code of the reason.
    pub network_refusals: Vec<(&'static str, u64)>,
    /// Traffic and connections of all sandboxes together.
    pub traffic: net::Usage,
}

/// Sandboxes by state. A terminated sandbox is not counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SandboxCounts {
    pub running: u64,
    pub paused: u64,
}

/// Reads all numbers. Costs one call to the network for each sandbox.
pub fn snapshot(services: &Services) -> MetricsSnapshot {
    let records = services.registry.records();
    let sandboxes = Isolation::ALL.map(|isolation| {
        let mut counts = SandboxCounts::default();
        for record in records.iter().filter(|record| record.config.isolation == isolation) {
            match record.state() {
                SandboxState::Running => counts.running += 1,
                SandboxState::Paused => counts.paused += 1,
                // A sandbox is registered after its creation and removed at its termination.
                SandboxState::Creating | SandboxState::Terminated => {}
            }
        }
        (isolation, counts)
    });
    let guests: Vec<net::Guest> = records.iter().map(|record| guest(record)).collect();
    let counters = &services.counters;
    MetricsSnapshot {
        creating: counters.creating.get(),
        sandboxes,
        executions_running: counters.executions_running.get(),
        executions_waiting: counters.executions_waiting.get(),
        pool: pool(services),
        capacity: services.ledger.capacity(),
        usage: services.ledger.used(),
        counts: counters.read(),
        latencies: counters.latencies.read(),
        snapshots: services.snapshots.used(),
        unrecorded_snapshot_bytes: services.snapshots.unrecorded_bytes(),
        disk: services.host_watch.as_ref().map(HostWatch::disk),
        network_refusals: counters.network_refusals.read(),
        traffic: services.host.network().total_usage(&guests),
    }
}

/// The fill levels of the pools. Nothing can be provisioned from an image that is not on this host, so its target is 0.
fn pool(services: &Services) -> Vec<PoolState> {
    let mut pools = services.warm_pool.state();
    for pool in &mut pools {
        if (services.find_image)(&pool.key.image).is_none() {
            pool.target = 0;
        }
    }
    pools
}
