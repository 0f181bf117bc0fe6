//! Durations of one subject, and their statistics.

use std::time::Duration;

/// Milliseconds, in the order in which they were measured.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn push(&mut self, duration: Duration) {
        self.0.push(duration.as_secs_f64() * 1000.0);
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The percentile by nearest rank, which is a measured value. 0 without samples.
    pub fn percentile(&self, percent: usize) -> f64 {
        nearest_rank(&self.0, percent)
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<T: IntoIterator<Item = Duration>>(durations: T) -> Self {
        let mut samples = Self::default();
        durations.into_iter().for_each(|duration| samples.push(duration));
        samples
    }
}

/// The median; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    nearest_rank(values, 50)
}

fn nearest_rank(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(rank).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let samples: Samples = (1..=200).rev().map(Duration::from_millis).collect();
        assert!((samples.percentile(50) - 100.0).abs() < 1e-9);
        assert!((samples.percentile(99) - 198.0).abs() < 1e-9);
        let one: Samples = [Duration::from_millis(7)].into_iter().collect();
        assert!((one.percentile(99) - 7.0).abs() < 1e-9);
    }
}
