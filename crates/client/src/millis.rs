//! Durations in milliseconds, as in request bodies.

use std::time::Duration;

pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
