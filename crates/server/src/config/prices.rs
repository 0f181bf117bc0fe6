//! `[prices]`: what an hour of running time costs.

use anyhow::{Result, ensure};

use super::declare::table;

/// Keeps amounts far below the range of 64-bit integers.
const HIGHEST_PRICE: u64 = 1_000_000;

table! {
    /// The price of running time. With a price above 0, each period of running time ends with an event `cost.runtime`.
    pub struct PriceList {
        /// One vCPU for an hour, rounded to billionths.
        cpu_hour: f64 = 0.0, "price" in 0..=HIGHEST_PRICE;
        /// 1024 MB of memory for an hour, rounded to billionths.
        memory_gb_hour: f64 = 0.0, "price" in 0..=HIGHEST_PRICE;
        /// Currency of the prices; events contain it.
        currency: String = "EUR".to_owned(), "three capital letters";
    }
}

impl PriceList {
    pub(super) fn check(&self) -> Result<()> {
        let currency = &self.currency;
        ensure!(
            currency.len() == 3 && currency.bytes().all(|byte| byte.is_ascii_uppercase()),
            "prices.currency is '{currency}'; it must be three capital letters, such as EUR"
        );
        Ok(())
    }

    pub fn of_an_hour(&self) -> rules::Prices {
        rules::Prices::new(self.cpu_hour, self.memory_gb_hour, &self.currency)
    }
}
