use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

const FROZEN: PausedProcesses = PausedProcesses::Frozen;

fn ended(note: &str) -> PausedProcesses {
    PausedProcesses::Ended { note: note.to_owned() }
}

fn stored(at: u64, note: Option<&str>) -> PausedProcesses {
    PausedProcesses::Stored { at: TimeMs(at), note: note.map(str::to_owned) }
}

#[test]
fn two_runs_and_a_pause() {
    assert_eq!(Lifecycle::Creating.reaches(100), None);
    let running = Lifecycle::started(TimeMs(1_000));
    assert_eq!(running.running_ms(TimeMs(1_400)), 400);
    assert_eq!(running.reaches(1_500), Some(TimeMs(2_500)));
    let paused = running.paused(TimeMs(2_000), FROZEN);
    assert_eq!(paused.finished_ms(), 1_000);
    assert_eq!((paused.paused_since(), paused.reaches(1_500)), (Some(TimeMs(2_000)), None));
    assert_eq!(paused.running_ms(TimeMs(9_000)), 1_000);
    let resumed = paused.resumed(TimeMs(9_000));
    assert_eq!((resumed.reaches(1_500), resumed.started_at()), (Some(TimeMs(9_500)), Some(TimeMs(1_000))));
    let terminated = resumed.terminated(TimeMs(9_250), "deleted");
    assert_eq!((terminated.finished_ms(), terminated.running_ms(TimeMs(99_000))), (1_250, 1_250));
    assert_eq!((terminated.end(), terminated.paused_at()), (Some((TimeMs(9_250), "deleted")), None));
}

#[test]
fn terminated_while_paused_or_never_started() {
    let paused = Lifecycle::started(TimeMs(10)).paused(TimeMs(30), FROZEN);
    let terminated = paused.terminated(TimeMs(500), "expired");
    assert_eq!((terminated.finished_ms(), terminated.paused_at()), (20, Some(TimeMs(30))));
    assert_eq!(terminated.paused_since(), None);
    let unstarted = Lifecycle::Creating.terminated(TimeMs(500), "deleted");
    assert_eq!((unstarted.finished_ms(), unstarted.started_at()), (0, None));
}

#[test]
fn a_clock_step_back_affects_only_the_current_run() {
    let paused = Lifecycle::started(TimeMs(1_000)).paused(TimeMs(1_500), FROZEN);
    assert_eq!(paused.finished_ms(), 500);
    let again = paused.resumed(TimeMs(200)).paused(TimeMs(100), FROZEN);
    assert_eq!(again.finished_ms(), 500);
    assert_eq!(again.resumed(TimeMs(150)).running_ms(TimeMs(160)), 510);
}

#[test]
fn the_processes_of_a_paused_sandbox_change_without_a_new_pause() {
    let paused = Lifecycle::started(TimeMs(10)).paused(TimeMs(30), FROZEN);
    let hibernated = paused.hibernated(TimeMs(50), TimeMs(50));
    assert_eq!(hibernated.hibernated_at(), Some(TimeMs(50)));
    let lost = hibernated.paused(TimeMs(90), ended("lost"));
    assert_eq!((lost.note(), lost.hibernated_at()), (Some("lost"), None));
    for next in [&hibernated, &lost] {
        assert_eq!((next.paused_since(), next.finished_ms()), (Some(TimeMs(30)), 20));
    }
    assert_eq!(lost.resumed(TimeMs(100)).note(), None);
}

#[test]
fn a_rollback_prepares_a_disk_until_it_is_the_own_one() {
    let running = Lifecycle::started(TimeMs(10));
    let prepared = running.rolled_back(TimeMs(30), stored(30, Some("rolled back")));
    assert!(prepared.has_prepared_disk());
    // Until then it stays prepared, wherever the processes are, and the note stays with them.
    let again = prepared.hibernated(TimeMs(40), TimeMs(40));
    assert!(again.has_prepared_disk() && again.note() == Some("rolled back"));
    assert!(prepared.paused(TimeMs(40), ended("lost")).has_prepared_disk());
    assert!(!prepared.with_own_disk().has_prepared_disk());
    assert!(!prepared.resumed(TimeMs(50)).paused(TimeMs(60), FROZEN).has_prepared_disk());
}

#[test]
fn transitions_that_do_not_fit_change_nothing() {
    let running = Lifecycle::started(TimeMs(10));
    assert_eq!(running.resumed(TimeMs(20)), running);
    assert_eq!(running.with_own_disk(), running);
    assert_eq!(Lifecycle::Creating.paused(TimeMs(5), FROZEN), Lifecycle::Creating);
    let end = running.terminated(TimeMs(91), "deleted");
    assert_eq!(end.resumed(TimeMs(100)), end);
    assert_eq!(end.paused(TimeMs(100), FROZEN), end);
    assert_eq!(end.rolled_back(TimeMs(100), FROZEN), end);
    assert_eq!(end.terminated(TimeMs(100), "again"), end);
}

#[test]
fn each_state_says_where_the_processes_are() {
    let running = Lifecycle::started(TimeMs(1));
    for (lifecycle, state, processes) in [
        (Lifecycle::Creating, SandboxState::Creating, ProcessState::Running),
        (running.clone(), SandboxState::Running, ProcessState::Running),
        (running.paused(TimeMs(2), FROZEN), SandboxState::Paused, ProcessState::Frozen),
        (running.paused(TimeMs(2), stored(3, None)), SandboxState::Paused, ProcessState::Stored),
        (running.paused(TimeMs(2), ended("lost")), SandboxState::Paused, ProcessState::Ended),
        (running.terminated(TimeMs(2), "deleted"), SandboxState::Terminated, ProcessState::Ended),
    ] {
        assert_eq!((lifecycle.state(), lifecycle.process_state()), (state, processes), "{lifecycle:?}");
    }
}

proptest! {
    /// With a clock that only goes forward, running and paused time add up to the time from start to end.
    #[test]
    fn running_and_paused_add_up(lengths in prop::collection::vec(0u64..1 << 40, 0..40)) {
        let (mut now, mut paused_ms, mut last) = (TimeMs(7), 0, 0);
        let mut lifecycle = Lifecycle::started(now);
        for (turn, length) in lengths.iter().enumerate() {
            now = now.after(*length);
            if turn % 2 == 0 {
                lifecycle = lifecycle.paused(now, FROZEN);
                prop_assert!(lifecycle.finished_ms() >= last);
                last = lifecycle.finished_ms();
            } else {
                paused_ms += lifecycle.paused_since().map_or(0, |since| now.since(since));
                lifecycle = lifecycle.resumed(now);
            }
        }
        let pause_open = lifecycle.paused_since().map_or(0, |since| now.since(since));
        let total_ms = lifecycle.terminated(now, "deleted").finished_ms();
        prop_assert_eq!(total_ms + paused_ms + pause_open, now.since(TimeMs(7)));
    }

    /// With any clock whatever nothing goes down, and nothing panics (overflow checks are on).
    #[test]
    fn running_time_never_shrinks(calls in prop::collection::vec((0u8..5, any::<u64>()), 0..60)) {
        let (mut lifecycle, mut last) = (Lifecycle::started(TimeMs(9)), 0);
        for (call, at) in calls {
            let at = TimeMs(at);
            lifecycle = match call {
                0 => lifecycle.paused(at, FROZEN),
                1 => lifecycle.hibernated(at, at),
                2 => lifecycle.rolled_back(at, ended("rolled back")),
                3 => lifecycle.resumed(at),
                _ => lifecycle.terminated(at, "deleted"),
            };
            prop_assert!(lifecycle.finished_ms() >= last && lifecycle.running_ms(at) >= last);
            last = lifecycle.finished_ms();
        }
    }
}
