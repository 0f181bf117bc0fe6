//! The time of day, and durations, in milliseconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time of day of the host, in milliseconds since 1970; 0 if its clock is set before.
pub fn unix_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The whole milliseconds of a duration; the largest number if there are more.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_are_cut_off_and_never_overflow() {
        assert_eq!(millis(Duration::from_micros(1_999)), 1);
        assert_eq!(millis(Duration::from_millis(u64::MAX)), u64::MAX);
        assert_eq!(millis(Duration::MAX), u64::MAX);
    }

    #[test]
    fn the_time_of_day_is_that_of_the_host() {
        let before = UNIX_EPOCH.elapsed().unwrap().as_secs();
        let now = unix_ms() / 1000;
        assert!((before..=before + 60).contains(&now), "{now} is not {before}");
    }
}
