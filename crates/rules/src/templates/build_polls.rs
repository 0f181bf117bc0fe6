//! Whether a client waits for a build, and when it has abandoned the build.
//!
//! Clients of some APIs wait for a build by polling its state, so no connection ends with them. A client that polls often waits for
//! the result. One that asks from time to time, or never, has left the build to the service.

/// Polls at most this far apart are those of a client that waits.
const GAP_MS: u64 = 10_000;
/// So many of them in a row show that it waits.
const POLLS: u32 = 5;
/// A client that waited has gone away when it has not polled for this long.
const ABANDONED_AFTER_MS: u64 = 30_000;

/// The polls of one build. Times are of any clock that does not go back.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BuildPolls {
    /// Those in a row.
    count: u32,
    last_ms: Option<u64>,
}

impl BuildPolls {
    /// After another poll.
    #[must_use]
    pub fn polled(self, now_ms: u64) -> Self {
        let follows = self.last_ms.is_some_and(|last| now_ms.saturating_sub(last) <= GAP_MS);
        let count = if follows { self.count.saturating_add(1) } else { 1 };
        Self { count, last_ms: Some(now_ms) }
    }

    /// When the client has abandoned the build unless it polls again. `None` if no client waits.
    pub fn abandoned_at_ms(self) -> Option<u64> {
        self.last_ms.filter(|_| self.count >= POLLS).map(|last| last.saturating_add(ABANDONED_AFTER_MS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(polls: impl IntoIterator<Item = u64>) -> Option<u64> {
        polls.into_iter().fold(BuildPolls::default(), BuildPolls::polled).abandoned_at_ms()
    }

    #[test]
    fn a_client_that_polls_often_waits() {
        assert_eq!(after([0, 200, 400, 600, 800]), Some(30_800));
        assert_eq!(after((0..100).map(|number| number * GAP_MS)), Some(99 * GAP_MS + ABANDONED_AFTER_MS));
    }

    #[test]
    fn a_client_that_asks_now_and_then_does_not_wait() {
        assert_eq!(after([]), None);
        assert_eq!(after([0, 200, 400, 600]), None);
        assert_eq!(after((0..100).map(|number| number * (GAP_MS + 1))), None);
    }

    #[test]
    fn a_client_that_becomes_slow_no_longer_waits() {
        let waits = [0, 200, 400, 600, 800];
        assert_eq!(after(waits.into_iter().chain([800 + GAP_MS + 1])), None);
        assert_eq!(after(waits.into_iter().chain([u64::MAX])), None);
    }
}
