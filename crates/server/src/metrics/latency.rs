//! The histograms of the engine: creates, resumes and starts of commands, by isolation.

use std::fmt;

use engine::{LATENCY_BOUNDS_US, LatencyCounts, LatencySnapshot, MetricsSnapshot};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

const US_PER_S: f64 = 1_000_000.0;

/// Name, help, and the histogram of one isolation.
type Row = (&'static str, &'static str, fn(&LatencySnapshot) -> LatencyCounts);

const ROWS: [Row; 3] = [
    (
        "sandbox_create_duration_seconds",
        "Time of creates that succeeded, without the pull of an image",
        |latencies| latencies.create,
    ),
    (
        "sandbox_resume_duration_seconds",
        "Time of resumes that succeeded, on request and for a command or a file operation",
        |latencies| latencies.resume,
    ),
    (
        "execution_start_duration_seconds",
        "Time from the request of a command until it runs, with the resume if there is one",
        |latencies| latencies.execute,
    ),
];

/// Each histogram has a series for each isolation, also for one without observations, so that rates are known from the start.
pub fn encode(encoder: &mut DescriptorEncoder<'_>, snapshot: &MetricsSnapshot) -> fmt::Result {
    for (name, help, histogram) in ROWS {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (isolation, latencies) in &snapshot.latencies {
            let counts = histogram(latencies);
            let labels = [("isolation", isolation.name())];
            let mut series = family.encode_family(&labels)?;
            let sum_s = counts.sum_us as f64 / US_PER_S;
            series.encode_histogram::<NoLabelSet>(sum_s, counts.count(), &buckets(&counts), None)?;
        }
    }
    Ok(())
}

/// Upper bounds in seconds. The encoder shows the largest number as infinity.
fn buckets(counts: &LatencyCounts) -> Vec<(f64, u64)> {
    let bounds = LATENCY_BOUNDS_US.iter().map(|bound_us| *bound_us as f64 / US_PER_S);
    bounds.chain([f64::MAX]).zip(counts.buckets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_in_seconds_and_the_last_is_infinite() {
        let mut counts = LatencyCounts::default();
        (counts.buckets[0], counts.buckets[15]) = (2, 3);
        let buckets = buckets(&counts);
        assert_eq!((buckets.len(), buckets[0], buckets[15]), (16, (0.0005, 2), (f64::MAX, 3)));
        assert_eq!(buckets[14], (30.0, 0));
    }
}
