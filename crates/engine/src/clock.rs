//! The time of day for everything that is stored or compared with stored times.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rules::TimeMs;
use tokio::time::Instant;

/// A source of the time of day.
#[derive(Debug, Clone, Copy)]
pub enum Clock {
    /// The host's clock.
    System,
    /// Starts at a given time and follows the runtime's timers, so that tests can let days pass.
    Runtime { start: TimeMs, begun: Instant },
}

impl Clock {
    pub fn runtime(start: TimeMs) -> Self {
        Self::Runtime { start, begun: Instant::now() }
    }

    pub fn now(&self) -> TimeMs {
        match self {
            Self::System => {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
                TimeMs(millis(since_epoch))
            }
            Self::Runtime { start, begun } => start.after(millis(begun.elapsed())),
        }
    }
}

pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
