//! The cost of running time, at prices that the operator sets.
//!
//! Amounts are whole billionths of the currency, so that sums are exact: a run costs the difference between the rounded costs of all
//! running time after it and before it.

use api::Resources;

const HOUR_MS: u128 = 3_600_000;
const MB_A_GB: u128 = 1024;
const NANOS: f64 = 1e9;

/// Prices of an hour, in billionths of the currency.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prices {
    pub cpu_hour_nanos: u64,
    pub memory_gb_hour_nanos: u64,
    pub currency: String,
}

impl Prices {
    /// From the configuration, rounded to billionths.
    pub fn new(cpu_hour: f64, memory_gb_hour: f64, currency: &str) -> Self {
        // Saturates, and turns NaN into 0; the configuration allows neither.
        let nanos = |price: f64| (price * NANOS).round() as u64;
        Self {
            cpu_hour_nanos: nanos(cpu_hour),
            memory_gb_hour_nanos: nanos(memory_gb_hour),
            currency: currency.to_owned(),
        }
    }

    /// When both prices are 0, there are no cost events.
    pub fn is_free(&self) -> bool {
        self.cpu_hour_nanos == 0 && self.memory_gb_hour_nanos == 0
    }

    /// The cost of the running time between two totals.
    pub fn between(&self, resources: Resources, before_ms: u64, after_ms: u64) -> u64 {
        self.all(resources, after_ms).saturating_sub(self.all(resources, before_ms))
    }

    fn all(&self, resources: Resources, ran_ms: u64) -> u64 {
        let cpu = u128::from(self.cpu_hour_nanos) * u128::from(resources.cpu) * MB_A_GB;
        let memory = u128::from(self.memory_gb_hour_nanos) * u128::from(resources.memory_mb);
        let cost = (cpu + memory).saturating_mul(u128::from(ran_ms)) / (HOUR_MS * MB_A_GB);
        u64::try_from(cost).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;

    const SMALL: Resources = Resources { cpu: 2, memory_mb: 2048, disk_mb: 5120 };

    #[test]
    fn an_hour_costs_its_price() {
        let prices = Prices::new(0.04, 0.005, "EUR");
        assert_eq!((prices.cpu_hour_nanos, prices.memory_gb_hour_nanos), (40_000_000, 5_000_000));
        assert_eq!(prices.between(SMALL, 0, 3_600_000), 90_000_000);
        assert_eq!(prices.between(SMALL, 3_600_000, 3_600_000), 0);
        assert_eq!(prices.between(SMALL, 5, 4), 0);
        assert!(!prices.is_free() && Prices::default().is_free());
        assert_eq!(Prices::new(f64::NAN, -1.0, ""), Prices::default());
        assert_eq!(Prices::new(1e300, 1e300, "").between(SMALL, 0, u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn costs_of_periods_add_up(cpu in 0u64..1 << 40, memory in 0u64..1 << 40, mut cuts in proptest::collection::vec(0u64..1 << 32, 1..20)) {
            let prices = Prices { cpu_hour_nanos: cpu, memory_gb_hour_nanos: memory, currency: String::new() };
            cuts.push(0);
            cuts.sort_unstable();
            let parts: u64 = cuts.windows(2).map(|pair| prices.between(SMALL, pair[0], pair[1])).sum();
            prop_assert_eq!(parts, prices.between(SMALL, 0, *cuts.last().unwrap()));
        }
    }
}
