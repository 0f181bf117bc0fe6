//! Counters of what happens and gauges of what there is, for metrics.
//!
//! Everybody counts where it happens, each in one addition. What there is now is counted by guards, so that nothing that ends
//! early stays counted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::EngineError;

/// Declares the counters once: as they are counted and as they are shown.
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
            /// Refusals of the network that were told, by the code of their reason.
            pub network_refusals: ByReason,
        }

        impl Counters {
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }
    };
}

counters! {
    /// Sandboxes made from the pool, and made from nothing.
    created_warm,
    created_cold,
    /// Creates that failed for a fault of ours; refusals are counted below.
    create_failed,
    /// Creates and resumes for which the host had no room, and creates for which it had no range of user ids.
    refused_capacity,
    refused_slots,
    /// Commands that were let in, and those refused because too many ran.
    executions_started,
    refused_executions,
    paused_on_request,
    paused_idle,
    resumed,
    /// Sandboxes that ended because somebody said so, at the end of their lifetime, and of the time they are kept paused.
    terminated_on_request,
    terminated_timeout,
    terminated_expired,
    /// Sandboxes whose processes ended outside their control.
    processes_lost,
    /// Rows that were removed because their time was over: terminated sandboxes, and kept answers.
    purged_sandboxes,
    purged_answers,
    /// Events that could not be noted.
    events_lost,
}

/// A number that many add to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Numbers by a reason, of which there are few.
#[derive(Debug, Default)]
pub struct ByReason(Mutex<BTreeMap<&'static str, u64>>);

impl ByReason {
    pub fn add(&self, reason: net::Reason, more: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(reason.code()).or_default() += more;
    }

    pub fn read(&self) -> Vec<(&'static str, u64)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(code, count)| (*code, *count))
            .collect()
    }
}

/// How many of something there are now.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<AtomicU64>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicU64>);

impl Gauge {
    pub fn one(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(Arc::clone(&self.0))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// A create or a resume that was refused or failed.
    pub fn refusal(&self, error: &EngineError) {
        match error {
            EngineError::NoCapacity(_) => self.refused_capacity.add(1),
            EngineError::NoSlot(_) => self.refused_slots.add(1),
            EngineError::TooManyExecutions(_) => self.refused_executions.add(1),
            _ => {}
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
