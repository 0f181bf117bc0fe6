//! A point in time. Arithmetic saturates, because a wall clock may jump.

use serde::{Deserialize, Serialize};

/// Milliseconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TimeMs(pub u64);

impl TimeMs {
    /// Milliseconds since `earlier`; 0 if that is in the future, as after the clock was set back.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// `ms` later, or the end of the range.
    pub fn after(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// `ms` earlier, or the start of the range.
    pub fn before(self, ms: u64) -> Self {
        Self(self.0.saturating_sub(ms))
    }
}

impl From<TimeMs> for api::Timestamp {
    fn from(at: TimeMs) -> Self {
        Self(at.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_and_sums_stay_in_range() {
        assert_eq!(TimeMs(5).since(TimeMs(2)), 3);
        assert_eq!(TimeMs(2).since(TimeMs(5)), 0);
        assert_eq!(TimeMs(2).after(u64::MAX), TimeMs(u64::MAX));
        assert_eq!(TimeMs(2).before(3), TimeMs(0));
    }
}
