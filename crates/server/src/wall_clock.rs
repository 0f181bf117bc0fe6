//! The wall clock, for what is stored or compared with what is stored: keys and idempotency records. The engine has a clock of its
//! own, which tests set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rules::TimeMs;

pub fn now() -> TimeMs {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    TimeMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
}
