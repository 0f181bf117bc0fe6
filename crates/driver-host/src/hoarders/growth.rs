//! Decides when something that grows is looked at closely.

use std::time::Instant;

/// After a look, none begins for this many times its duration.
const PAUSE_FACTOR: u32 = 4;

/// Keeps looks to a part of the time.
#[derive(Debug, Default)]
pub struct Pace {
    /// No look begins before.
    paused_until: Option<Instant>,
}

impl Pace {
    /// Looks, unless the last look has just been.
    pub fn look<T>(&mut self, look: impl FnOnce() -> T) -> Option<T> {
        let begun = Instant::now();
        if !self.is_due(begun) {
            return None;
        }
        let seen = look();
        self.paused_until = Some(Instant::now() + begun.elapsed() * PAUSE_FACTOR);
        Some(seen)
    }

    fn is_due(&self, now: Instant) -> bool {
        self.paused_until.is_none_or(|until| now >= until)
    }
}

/// A number of bytes that is watched from a size on. What is freed after a look may be kept for later use, so the next look is due when
/// it has grown further.
#[derive(Debug)]
pub struct Growth {
    watched_bytes: u64,
    step_bytes: u64,
    /// The size at the last look.
    seen_bytes: u64,
    pace: Pace,
}

impl Growth {
    pub fn new(watched_bytes: u64, step_bytes: u64) -> Self {
        Self { watched_bytes, step_bytes, seen_bytes: 0, pace: Pace::default() }
    }

    /// Looks, if it is due.
    pub fn look<T>(&mut self, bytes: u64, look: impl FnOnce() -> T) -> Option<T> {
        if !self.is_due(bytes, Instant::now()) {
            return None;
        }
        self.pace.look(look)
    }

    /// Whether it is watched at its size.
    pub fn is_watched(&self, bytes: u64) -> bool {
        bytes > self.watched_bytes
    }

    fn is_due(&mut self, bytes: u64, now: Instant) -> bool {
        // What has been freed may be taken again.
        self.seen_bytes = self.seen_bytes.min(bytes);
        let has_grown = self.is_watched(bytes) && bytes > self.seen_bytes + self.step_bytes;
        let is_due = has_grown && self.pace.is_due(now);
        if is_due {
            self.seen_bytes = bytes;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_look_is_due_after_growth() {
        let mut growth = Growth::new(64, 16);
        let now = Instant::now();
        let mut due = |bytes| growth.is_due(bytes, now);
        assert!(!due(2) && !due(64) && due(65));
        // What was freed is kept for later use.
        assert!(!due(65) && !due(81) && due(82) && !due(82));
        assert!(!due(2) && due(70));
    }

    #[test]
    fn looks_take_a_part_of_the_time() {
        let mut growth = Growth::new(0, 0);
        let sleep = || std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        assert!(growth.look(1, sleep).is_some());
        assert!(!growth.is_due(2, begun + Duration::from_millis(50)));
        assert!(growth.is_due(2, Instant::now() + Duration::from_secs(60)));
    }
}
