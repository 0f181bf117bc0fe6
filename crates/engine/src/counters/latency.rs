//! Histograms of how long requests took, by isolation. Only requests that succeeded count, so that refusals do not look fast.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::Isolation;

/// Upper bounds of the buckets in microseconds: from a command in a warm sandbox to a start under gVisor on a busy host.
pub const LATENCY_BOUNDS_US: [u64; 15] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    5_000_000, 10_000_000, 30_000_000,
];
/// The last bucket has no upper bound.
const BUCKETS: usize = LATENCY_BOUNDS_US.len() + 1;

/// A histogram.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
}

/// The counts of a histogram.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencyCounts {
    /// Durations in each bucket, without those of the buckets below.
    pub buckets: [u64; BUCKETS],
    pub sum_us: u64,
}

/// The histograms of one isolation.
#[derive(Debug, Default)]
pub struct Latencies {
    pub create: Latency,
    pub resume: Latency,
    /// From the request of a command until it runs, with the resume if there is one.
    pub execute: Latency,
}

/// What [`Latencies`] have counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LatencySnapshot {
    pub create: LatencyCounts,
    pub resume: LatencyCounts,
    pub execute: LatencyCounts,
}

/// The histograms of all isolations.
#[derive(Debug, Default)]
pub struct LatenciesByIsolation {
    container: Latencies,
    gvisor: Latencies,
}

impl Latency {
    pub fn observe(&self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < took_us);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(took_us, Ordering::Relaxed);
    }

    pub fn read(&self) -> LatencyCounts {
        let buckets = std::array::from_fn(|bucket| self.buckets[bucket].load(Ordering::Relaxed));
        LatencyCounts { buckets, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

impl LatencyCounts {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl LatenciesByIsolation {
    pub fn of(&self, isolation: Isolation) -> &Latencies {
        match isolation {
            Isolation::Container => &self.container,
            Isolation::Gvisor => &self.gvisor,
        }
    }

    pub fn read(&self) -> [(Isolation, LatencySnapshot); 2] {
        Isolation::ALL.map(|isolation| {
            let Latencies { create, resume, execute } = self.of(isolation);
            let snapshot =
                LatencySnapshot { create: create.read(), resume: resume.read(), execute: execute.read() };
            (isolation, snapshot)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_in_the_bucket_whose_bound_it_does_not_exceed() {
        let latency = Latency::default();
        for us in [0, 500, 501, 1_000, 29_999_999, 30_000_000, 30_000_001, 3_600_000_000] {
            latency.observe(Duration::from_micros(us));
        }
        let counts = latency.read();
        assert_eq!(
            (counts.buckets[0], counts.buckets[1], counts.buckets[14], counts.buckets[15]),
            (2, 2, 2, 2)
        );
        assert_eq!(counts.count(), 8);
        assert_eq!(counts.sum_us, 500 + 501 + 1_000 + 29_999_999 + 30_000_000 + 30_000_001 + 3_600_000_000);
    }

    #[test]
    fn isolations_count_apart() {
        let latencies = LatenciesByIsolation::default();
        latencies.of(Isolation::Gvisor).resume.observe(Duration::from_millis(3));
        for (isolation, snapshot) in latencies.read() {
            assert_eq!(snapshot.resume.count(), u64::from(isolation == Isolation::Gvisor));
            assert_eq!((snapshot.create, snapshot.execute), Default::default());
        }
    }
}
