//! The time of day for everything that is stored or compared with stored times.

use base::{millis, unix_ms};
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
            Self::System => TimeMs(unix_ms()),
            Self::Runtime { start, begun } => start.after(millis(begun.elapsed())),
        }
    }
}
