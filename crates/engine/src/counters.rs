//! Counters of events and gauges of current numbers, for metrics.
//!
//! Components count where something happens, with one atomic addition. Gauges are decremented by guards, so that a cancelled
//! operation does not stay counted.

pub mod latency;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use api::Isolation;
use base::IgnorePoison;

use crate::counters::latency::LatenciesByIsolation;

/// Declares each counter once, for counting and for reading.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// How often something happened since the engine was opened.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Debug, Default)]
        pub struct Counters {
            $(pub $name: Counter,)*
            /// Refusals by the network, by the code of the reason.
            pub network_refusals: ByReason,
            /// How long creates, resumes and starts of commands took.
            pub latencies: LatenciesByIsolation,
            /// Creates in progress.
            pub creating: Gauge,
            pub executions_running: Gauge,
            /// Commands that wait for an execution slot.
            pub executions_waiting: Gauge,
        }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Sandboxes created from the warm pool, and created cold, by isolation.
    created_warm_container,
    created_warm_gvisor,
    created_cold_container,
    created_cold_gvisor,
    /// Creates that failed in the service. Refused creates are counted below.
    create_failed,
    /// Creates and resumes refused for lack of capacity, and creates refused for lack of a range of user ids.
    refused_capacity,
    refused_slots,
    /// Requests refused because the host is short of disk or memory, and because of a quota.
    refused_shortage,
    refused_quota,
    /// Admitted commands, and commands refused because too many were running.
    executions_started,
    refused_executions,
    paused_on_request,
    paused_idle,
    /// Pauses at the end of a timeout.
    paused_timeout,
    /// Pauses of sandboxes that wrote while the host's disk was almost full.
    paused_disk_pressure,
    resumed,
    /// Sandboxes whose processes were stored on the disk, and those that continued them.
    hibernated,
    woken,
    paged_out,
    snapshots_taken,
    /// Copies of snapshots in the object store: those that were stored, their bytes, failed attempts, and snapshots that were read back.
    snapshots_stored,
    snapshot_bytes_sent,
    snapshot_uploads_failed,
    snapshots_fetched,
    /// Hibernated sandboxes that were copied to the object store, and those that were adopted from another host.
    sandboxes_stored,
    sandboxes_adopted,
    /// Snapshots that were deleted at the end of their retention.
    snapshots_expired,
    rolled_back,
    /// Forks, each of which created several sandboxes.
    forked,
    /// Sandboxes terminated on request, at the end of their lifetime, and at the end of the retention of paused sandboxes.
    terminated_on_request,
    terminated_timeout,
    terminated_expired,
    /// Sandboxes whose processes ended unexpectedly.
    processes_lost,
    /// Processes that the kernel has killed for lack of memory.
    memory_kills,
    /// Expired rows that were deleted: terminated sandboxes, and idempotency records.
    purged_sandboxes,
    purged_idempotency_records,
    /// Work that was given up because daemons have ended during it.
    work_given_up,
    /// Events that could not be appended to the event journal.
    events_lost,
}

/// A number that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A counter for each reason. There are few reasons.
#[derive(Debug, Default)]
pub struct ByReason(Mutex<BTreeMap<&'static str, u64>>);

impl ByReason {
    pub fn add(&self, reason: net::Reason, count: u64) {
        *self.0.lock().ignore_poison().entry(reason.code()).or_default() += count;
    }

    pub fn read(&self) -> Vec<(&'static str, u64)> {
        self.0.lock().ignore_poison().iter().map(|(code, count)| (*code, *count)).collect()
    }
}

/// A current number.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

/// Counts one until it is dropped.
#[derive(Debug)]
pub struct GaugeGuard(Arc<AtomicU64>);

impl Gauge {
    pub fn enter(&self) -> GaugeGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        GaugeGuard(Arc::clone(&self.0))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for GaugeGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    pub fn created_warm(&self, isolation: Isolation) -> &Counter {
        match isolation {
            Isolation::Container => &self.created_warm_container,
            Isolation::Gvisor => &self.created_warm_gvisor,
        }
    }

    pub fn created_cold(&self, isolation: Isolation) -> &Counter {
        match isolation {
            Isolation::Container => &self.created_cold_container,
            Isolation::Gvisor => &self.created_cold_gvisor,
        }
    }

    pub fn paused(&self, reason: &str) {
        match reason {
            "idle" => self.paused_idle.add(1),
            "timeout" => self.paused_timeout.add(1),
            "disk_pressure" => self.paused_disk_pressure.add(1),
            _ => self.paused_on_request.add(1),
        }
    }

    pub fn terminated(&self, reason: &str) {
        match reason {
            "timeout" => self.terminated_timeout.add(1),
            "expired" => self.terminated_expired.add(1),
            _ => self.terminated_on_request.add(1),
        }
    }
}
