//! Deadlines: when a sandbox is next paused or terminated automatically.
//!
//! The engine recomputes the deadline after every change of a [`Watch`] and sets its timer. An outdated timer is harmless: when it
//! fires, the engine recomputes and acts only on what is due then.

use api::OnTimeout;

use crate::{Lifecycle, TimeMs};

/// Whether a sandbox has activity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Clients wait: a command, an open stream, a file or port operation is in progress.
    Busy,
    /// Only detached commands run, for which no client waits. They prevent an idle pause, and continue after a hibernation.
    Detached,
    /// Idle since then.
    QuietSince(TimeMs),
}

/// Everything that a sandbox's deadlines depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watch<'a> {
    pub lifecycle: &'a Lifecycle,
    pub activity: Activity,
    /// Running time at which its timeout ends.
    pub lifetime_ms: u64,
    pub on_timeout: OnTimeout,
    /// Idle time after which it is paused; 0 never pauses it.
    pub idle_timeout_ms: u64,
    /// Paused time after which it is terminated; 0 keeps it forever.
    pub paused_retention_ms: u64,
    /// Paused time after which its processes are stored on the disk; `None` if they cannot be or must not be.
    pub hibernate_after_ms: Option<u64>,
    /// The earliest time for that, after an attempt that did not succeed.
    pub hibernate_not_before: TimeMs,
}

/// Why a sandbox is terminated automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Expiry {
    /// Its timeout ended.
    Timeout,
    /// It was paused for longer than the retention.
    Expired,
}

impl Expiry {
    /// The `reason` that its record and its event carry.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Expired => "expired",
        }
    }
}

/// Why a sandbox is paused automatically.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AutoPause {
    Idle,
    /// Its timeout ended.
    Timeout,
}

impl AutoPause {
    /// The `reason` that its event carries.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Timeout => "timeout",
        }
    }
}

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Due {
    Expire(Expiry),
    Pause(AutoPause),
    /// Of a paused sandbox.
    FreeMemory,
}

/// What happens to a sandbox by itself, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline {
    pub at: TimeMs,
    pub what: Due,
}

impl Deadline {
    /// Whether its time has come.
    pub fn is_due(&self, now: TimeMs) -> bool {
        self.at <= now
    }
}

/// The next deadline if nothing else happens. When lifetime and idle time end together, the lifetime wins.
pub fn next_deadline(watch: &Watch<'_>) -> Option<Deadline> {
    match watch.lifecycle {
        Lifecycle::Creating | Lifecycle::Terminated { .. } => None,
        Lifecycle::Running { .. } => match (lifetime(watch), idle(watch)) {
            (Some(lifetime), Some(idle)) if idle.at < lifetime.at => Some(idle),
            (Some(lifetime), _) => Some(lifetime),
            (None, idle) => idle,
        },
        Lifecycle::Paused { .. } => match (retention(watch), hibernation(watch)) {
            (Some(retention), Some(hibernation)) if hibernation.at < retention.at => Some(hibernation),
            (Some(retention), _) => Some(retention),
            (None, hibernation) => hibernation,
        },
    }
}

fn lifetime(watch: &Watch<'_>) -> Option<Deadline> {
    let at = watch.lifecycle.reaches(watch.lifetime_ms)?;
    let what = match watch.on_timeout {
        OnTimeout::Terminate => Due::Expire(Expiry::Timeout),
        OnTimeout::Pause => Due::Pause(AutoPause::Timeout),
    };
    Some(Deadline { at, what })
}

fn idle(watch: &Watch<'_>) -> Option<Deadline> {
    match watch.activity {
        Activity::Busy | Activity::Detached => None,
        Activity::QuietSince(_) if watch.idle_timeout_ms == 0 => None,
        Activity::QuietSince(since) => {
            // A resume counts as a request: idle time before the pause does not count.
            let since = since.max(watch.lifecycle.running_since().unwrap_or(since));
            Some(Deadline { at: since.after(watch.idle_timeout_ms), what: Due::Pause(AutoPause::Idle) })
        }
    }
}

/// Processes with work that a client waits for stay in memory: the client's connection does not survive a hibernation.
fn hibernation(watch: &Watch<'_>) -> Option<Deadline> {
    let after_ms = watch.hibernate_after_ms.filter(|_| watch.activity != Activity::Busy)?;
    let since = watch.lifecycle.paused_since()?;
    Some(Deadline { at: since.after(after_ms).max(watch.hibernate_not_before), what: Due::FreeMemory })
}

fn retention(watch: &Watch<'_>) -> Option<Deadline> {
    if watch.paused_retention_ms == 0 {
        return None;
    }
    let since = watch.lifecycle.paused_since()?;
    Some(Deadline { at: since.after(watch.paused_retention_ms), what: Due::Expire(Expiry::Expired) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PausedProcesses;
    use proptest::prelude::{any, prop_assert, proptest};

    fn running(since: u64) -> Lifecycle {
        Lifecycle::started(TimeMs(since))
    }

    fn paused(lifecycle: &Lifecycle, at: u64) -> Lifecycle {
        lifecycle.paused(TimeMs(at), PausedProcesses::Frozen)
    }

    /// Without activity since `quiet`.
    fn watch(lifecycle: &Lifecycle, quiet: u64) -> Watch<'_> {
        Watch {
            lifecycle,
            activity: Activity::QuietSince(TimeMs(quiet)),
            lifetime_ms: 300,
            on_timeout: OnTimeout::Terminate,
            idle_timeout_ms: 120,
            paused_retention_ms: 10_000,
            hibernate_after_ms: None,
            hibernate_not_before: TimeMs(0),
        }
    }

    fn due(at: u64, what: Due) -> Option<Deadline> {
        Some(Deadline { at: TimeMs(at), what })
    }

    #[test]
    fn quiet_pauses_before_the_lifetime_ends() {
        assert_eq!(next_deadline(&watch(&running(1_000), 1_000)), due(1_120, Due::Pause(AutoPause::Idle)));
    }

    #[test]
    fn activity_moves_the_pause_until_the_lifetime_comes_first() {
        let lifecycle = running(1_000);
        let mut watch = watch(&lifecycle, 1_150);
        assert_eq!(next_deadline(&watch), due(1_270, Due::Pause(AutoPause::Idle)));
        watch.activity = Activity::QuietSince(TimeMs(1_200));
        assert_eq!(next_deadline(&watch), due(1_300, Due::Expire(Expiry::Timeout)));
    }

    #[test]
    fn the_lifetime_precedes_the_idle_pause_in_a_tie() {
        let lifecycle = running(1_000);
        let watch = Watch { idle_timeout_ms: 300, ..watch(&lifecycle, 1_000) };
        assert_eq!(next_deadline(&watch), due(1_300, Due::Expire(Expiry::Timeout)));
    }

    #[test]
    fn a_paused_sandbox_is_hibernated_unless_it_has_work() {
        let lifecycle = paused(&running(1_000), 2_000);
        let mut watch = watch(&lifecycle, 1_000);
        assert_eq!(next_deadline(&watch), due(12_000, Due::Expire(Expiry::Expired)));
        watch.hibernate_after_ms = Some(60);
        assert_eq!(next_deadline(&watch), due(2_060, Due::FreeMemory));
        watch.hibernate_not_before = TimeMs(2_100);
        assert_eq!(next_deadline(&watch), due(2_100, Due::FreeMemory));
        watch.hibernate_not_before = TimeMs(0);
        // The retention wins in a tie, and when it is shorter.
        for after in [10_000, 10_001] {
            watch.hibernate_after_ms = Some(after);
            assert_eq!(next_deadline(&watch), due(12_000, Due::Expire(Expiry::Expired)));
        }
        watch.hibernate_after_ms = Some(60);
        watch.paused_retention_ms = 0;
        assert_eq!(next_deadline(&watch), due(2_060, Due::FreeMemory));
        watch.activity = Activity::Detached;
        assert_eq!(next_deadline(&watch), due(2_060, Due::FreeMemory));
        watch.activity = Activity::Busy;
        assert_eq!(next_deadline(&watch), None);
    }

    #[test]
    fn a_timeout_may_pause() {
        let on_timeout = OnTimeout::Pause;
        let lifecycle = running(1_000);
        let watch = Watch { activity: Activity::Busy, on_timeout, ..watch(&lifecycle, 1_000) };
        assert_eq!(next_deadline(&watch), due(1_300, Due::Pause(AutoPause::Timeout)));
        let lifecycle = paused(&lifecycle, 1_300);
        let watch = Watch { lifecycle: &lifecycle, ..watch };
        assert_eq!(next_deadline(&watch), due(11_300, Due::Expire(Expiry::Expired)));
    }

    #[test]
    fn a_busy_sandbox_is_not_idle_but_has_a_lifetime() {
        for activity in [Activity::Busy, Activity::Detached] {
            let lifecycle = running(1_000);
            let watch = Watch { activity, ..watch(&lifecycle, 1_000) };
            assert_eq!(next_deadline(&watch), due(1_300, Due::Expire(Expiry::Timeout)));
        }
    }

    #[test]
    fn idle_zero_is_off() {
        let lifecycle = running(1_000);
        let watch = Watch { idle_timeout_ms: 0, ..watch(&lifecycle, 1_000) };
        assert_eq!(next_deadline(&watch), due(1_300, Due::Expire(Expiry::Timeout)));
    }

    #[test]
    fn the_lifetime_stands_still_while_paused() {
        let lifecycle = paused(&running(1_000), 1_100);
        assert_eq!(next_deadline(&watch(&lifecycle, 1_000)), due(11_100, Due::Expire(Expiry::Expired)));
        let lifecycle = lifecycle.resumed(TimeMs(9_000));
        let watch = Watch { activity: Activity::Busy, ..watch(&lifecycle, 1_000) };
        assert_eq!(next_deadline(&watch), due(9_200, Due::Expire(Expiry::Timeout)));
    }

    #[test]
    fn a_lifetime_that_is_used_up_is_due_at_once() {
        let lifecycle = paused(&running(1_000), 1_900).resumed(TimeMs(5_000));
        let deadline = next_deadline(&watch(&lifecycle, 1_000)).unwrap();
        assert!(deadline.is_due(TimeMs(5_000)) && !deadline.is_due(TimeMs(4_999)));
    }

    #[test]
    fn idle_time_begins_anew_with_a_resume() {
        let lifecycle = paused(&running(1_000), 1_120).resumed(TimeMs(5_000));
        assert_eq!(next_deadline(&watch(&lifecycle, 1_000)), due(5_120, Due::Pause(AutoPause::Idle)));
    }

    #[test]
    fn retention_zero_keeps_for_ever() {
        let lifecycle = paused(&running(1_000), 1_100);
        let watch = Watch { paused_retention_ms: 0, ..watch(&lifecycle, 1_000) };
        assert_eq!(next_deadline(&watch), None);
    }

    #[test]
    fn nothing_is_due_before_the_start_and_after_the_end() {
        for lifecycle in [Lifecycle::Creating, running(1_000).terminated(TimeMs(2_000), "deleted")] {
            assert_eq!(next_deadline(&watch(&lifecycle, 1_000)), None);
        }
    }

    #[test]
    fn reasons_have_their_names() {
        assert_eq!((Expiry::Timeout.reason(), Expiry::Expired.reason()), ("timeout", "expired"));
        assert_eq!((AutoPause::Idle.reason(), AutoPause::Timeout.reason()), ("idle", "timeout"));
    }

    proptest! {
        /// At any numbers: no panic, and never later than the end of the lifetime.
        #[test]
        fn never_later_than_the_lifetime(since: u64, quiet: u64, lifetime_ms: u64, idle_timeout_ms in any::<u64>()) {
            let lifecycle = running(since);
            let watch = Watch { lifetime_ms, idle_timeout_ms, ..watch(&lifecycle, quiet) };
            let deadline = next_deadline(&watch);
            prop_assert!(deadline.is_some_and(|deadline| deadline.at <= TimeMs(since).after(lifetime_ms)));
        }
    }
}
