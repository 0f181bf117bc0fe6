//! The wall clock, for what is stored or compared with what is stored: keys and idempotency records. The engine has a clock of its
//! own, which tests set.

use rules::TimeMs;

/// The time of day of the host.
pub fn now() -> TimeMs {
    TimeMs(base::unix_ms())
}
