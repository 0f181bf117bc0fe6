//! How long a sandbox ran and how long it was paused.
//!
//! ```text
//!   NotStarted --started--> Running <--paused / resumed--> Paused
//!                              any --terminated--> Ended
//! ```
//!
//! One value per sandbox, stored in its record and changed only by its actor. Nothing fails: after the clock was set back a run
//! counts 0 instead of less, and a call that does not fit the phase changes nothing and returns the current value.

use crate::TimeMs;

/// What the sandbox's time currently counts as.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Phase {
    #[default]
    NotStarted,
    Running {
        since: TimeMs,
    },
    Paused {
        since: TimeMs,
    },
    Ended,
}

/// Running time over all runs, and the current phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Accounting {
    finished_ms: u64,
    phase: Phase,
}

impl Accounting {
    /// From a record: the running time of all finished runs, and the phase.
    pub fn restore(finished_ms: u64, phase: Phase) -> Self {
        Self { finished_ms, phase }
    }

    /// The running time of all finished runs, without the current one.
    pub fn finished_ms(&self) -> u64 {
        self.finished_ms
    }

    /// Whether time counts as running or as paused.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The first run begins.
    pub fn started(&mut self, at: TimeMs) {
        if self.phase == Phase::NotStarted {
            self.phase = Phase::Running { since: at };
        }
    }

    /// A run ends. Returns `runtimeDurationMs`: the running time over all runs.
    pub fn paused(&mut self, at: TimeMs) -> u64 {
        if let Phase::Running { .. } = self.phase {
            self.finished_ms = self.running_ms(at);
            self.phase = Phase::Paused { since: at };
        }
        self.finished_ms
    }

    /// The next run begins. Returns `pausedDurationMs`: the length of this pause.
    pub fn resumed(&mut self, at: TimeMs) -> u64 {
        let Phase::Paused { since } = self.phase else { return 0 };
        self.phase = Phase::Running { since: at };
        at.since(since)
    }

    /// The sandbox is terminated. Returns `totalRuntimeMs`: the running time over all runs.
    pub fn terminated(&mut self, at: TimeMs) -> u64 {
        self.finished_ms = self.running_ms(at);
        self.phase = Phase::Ended;
        self.finished_ms
    }

    /// The running time over all runs until `at`, including the current one.
    pub fn running_ms(&self, at: TimeMs) -> u64 {
        match self.phase {
            Phase::Running { since } => self.finished_ms.saturating_add(at.since(since)),
            Phase::NotStarted | Phase::Paused { .. } | Phase::Ended => self.finished_ms,
        }
    }

    /// When the running time reaches `lifetime_ms` if the current run continues; `None` while the sandbox does not run.
    pub fn reaches(&self, lifetime_ms: u64) -> Option<TimeMs> {
        match self.phase {
            Phase::Running { since } => Some(since.after(lifetime_ms.saturating_sub(self.finished_ms))),
            Phase::NotStarted | Phase::Paused { .. } | Phase::Ended => None,
        }
    }

    /// When the current run began.
    pub fn running_since(&self) -> Option<TimeMs> {
        match self.phase {
            Phase::Running { since } => Some(since),
            Phase::NotStarted | Phase::Paused { .. } | Phase::Ended => None,
        }
    }

    /// When the present pause began; `None` if the sandbox is not paused.
    pub fn paused_since(&self) -> Option<TimeMs> {
        match self.phase {
            Phase::Paused { since } => Some(since),
            Phase::NotStarted | Phase::Running { .. } | Phase::Ended => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

    #[test]
    fn two_runs_and_a_pause() {
        let mut accounting = Accounting::default();
        assert_eq!(accounting.reaches(100), None);
        accounting.started(TimeMs(1_000));
        assert_eq!(accounting.running_ms(TimeMs(1_400)), 400);
        assert_eq!(accounting.reaches(1_500), Some(TimeMs(2_500)));
        assert_eq!(accounting.paused(TimeMs(2_000)), 1_000);
        assert_eq!((accounting.paused_since(), accounting.reaches(1_500)), (Some(TimeMs(2_000)), None));
        assert_eq!(accounting.running_ms(TimeMs(9_000)), 1_000);
        assert_eq!(accounting.resumed(TimeMs(9_000)), 7_000);
        assert_eq!(accounting.reaches(1_500), Some(TimeMs(9_500)));
        assert_eq!(accounting.terminated(TimeMs(9_250)), 1_250);
        assert_eq!(accounting.running_ms(TimeMs(99_000)), 1_250);
        assert_eq!((accounting.finished_ms(), accounting.phase()), (1_250, Phase::Ended));
    }

    #[test]
    fn terminated_while_paused_or_never_started() {
        let mut paused = Accounting::default();
        paused.started(TimeMs(10));
        paused.paused(TimeMs(30));
        assert_eq!(paused.terminated(TimeMs(500)), 20);
        assert_eq!(Accounting::default().terminated(TimeMs(500)), 0);
    }

    #[test]
    fn a_clock_step_back_affects_only_the_current_run() {
        let mut accounting = Accounting::default();
        accounting.started(TimeMs(1_000));
        assert_eq!(accounting.paused(TimeMs(1_500)), 500);
        assert_eq!(accounting.resumed(TimeMs(200)), 0);
        assert_eq!(accounting.paused(TimeMs(100)), 500);
        assert_eq!(accounting.resumed(TimeMs(150)), 50);
    }

    #[test]
    fn calls_that_do_not_suit_the_phase_change_nothing() {
        let mut accounting = Accounting::default();
        assert_eq!((accounting.paused(TimeMs(5)), accounting.resumed(TimeMs(6))), (0, 0));
        assert_eq!(accounting, Accounting::default());
        accounting.started(TimeMs(10));
        accounting.started(TimeMs(20));
        assert_eq!(accounting.running_ms(TimeMs(30)), 20);
        accounting.paused(TimeMs(30));
        assert_eq!(accounting.paused(TimeMs(90)), 20);
        accounting.terminated(TimeMs(91));
        let ended = accounting;
        accounting.started(TimeMs(100));
        accounting.resumed(TimeMs(100));
        assert_eq!(accounting, ended);
    }

    #[test]
    fn accounting_survives_a_record_round_trip() {
        let mut accounting = Accounting::default();
        accounting.started(TimeMs(10));
        accounting.paused(TimeMs(30));
        assert_eq!(Accounting::restore(accounting.finished_ms(), accounting.phase()), accounting);
    }

    proptest! {
        /// With a clock that only goes forward, running and paused time add up to the time from start to end.
        #[test]
        fn running_and_paused_add_up(lengths in prop::collection::vec(0u64..1 << 40, 0..40)) {
            let mut accounting = Accounting::default();
            let (mut now, mut paused_ms, mut last) = (TimeMs(7), 0, 0);
            accounting.started(now);
            for (turn, length) in lengths.iter().enumerate() {
                now = now.after(*length);
                if turn % 2 == 0 {
                    let running_ms = accounting.paused(now);
                    prop_assert!(running_ms >= last);
                    last = running_ms;
                } else {
                    paused_ms += accounting.resumed(now);
                }
            }
            let pause_open = accounting.paused_since().map_or(0, |since| now.since(since));
            prop_assert_eq!(accounting.terminated(now) + paused_ms + pause_open, now.since(TimeMs(7)));
        }

        /// With any clock whatever nothing goes down, and nothing panics (overflow checks are on).
        #[test]
        fn running_time_never_shrinks(calls in prop::collection::vec((0u8..4, any::<u64>()), 0..60)) {
            let (mut accounting, mut last) = (Accounting::default(), 0);
            for (call, at) in calls {
                match call {
                    0 => accounting.started(TimeMs(at)),
                    1 => prop_assert!(accounting.paused(TimeMs(at)) >= last),
                    2 => prop_assert!(accounting.resumed(TimeMs(at)) <= at),
                    _ => prop_assert!(accounting.terminated(TimeMs(at)) >= last),
                }
                prop_assert!(accounting.finished_ms() >= last);
                last = accounting.finished_ms();
            }
        }
    }
}
