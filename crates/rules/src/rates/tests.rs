use proptest::prelude::*;

use super::*;
use crate::ReachedLimit;

fn window(limit: u32) -> Window {
    Window::new(Limit::Read, limit)
}

#[test]
fn a_request_without_an_endpoint_counts_by_its_method() {
    for method in ["GET", "HEAD"] {
        assert_eq!(Charge::without_endpoint(method), Charge::Key(KeyCharge::Read), "{method}");
    }
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "get"] {
        assert_eq!(Charge::without_endpoint(method), Charge::Key(KeyCharge::Write), "{method}");
    }
}

#[test]
fn the_defaults_are_the_specification_and_600_for_other_operations() {
    assert_eq!(Rates::default(), Rates { read: 300, write: 60, create: 10, execute: 100, operate: 600 });
}

#[test]
fn exactly_the_limit_gets_through_in_any_minute() {
    let mut window = window(3);
    for (at_ms, remaining) in [(1000, 2), (1000, 1), (20_000, 0)] {
        let standing = window.try_count(at_ms).unwrap();
        assert_eq!((standing.limit, standing.remaining, standing.reset_at_ms), (3, remaining, 61_000));
    }
    assert!(window.try_count(20_001).is_err() && window.try_count(60_999).is_err());
    // Two fall out at once; what was refused was not counted.
    assert_eq!(window.try_count(61_000).unwrap().remaining, 1);
    assert_eq!(window.try_count(61_000).unwrap().remaining, 0);
    assert_eq!(window.try_count(79_999).unwrap_err().standing.reset_at_ms, 80_000);
    assert_eq!(window.try_count(80_000).unwrap().remaining, 0);
}

#[test]
fn retry_after_is_exact() {
    let mut window = window(1);
    window.try_count(500).unwrap();
    for (at_ms, retry_after_s) in [(500, 60), (501, 60), (1500, 59), (59_500, 1), (60_499, 1)] {
        let refusal = window.try_count(at_ms).unwrap_err();
        assert_eq!(refusal.retry_after_s, retry_after_s, "{at_ms}");
        assert_eq!((refusal.standing.remaining, refusal.standing.reset_at_ms), (0, 60_500));
        assert!(window.clone().try_count(at_ms + retry_after_s * 1000).is_ok());
    }
    assert_eq!(
        window.try_count(1500).unwrap_err().limit(RateSource::Common).to_string(),
        "the limit is 1 reads per minute (the operator sets limits.read_per_minute)"
    );
}

#[test]
fn no_limit_counts_nothing() {
    let mut window = window(0);
    for at_ms in 0..1000 {
        let standing = window.try_count(at_ms).unwrap();
        assert_eq!((standing.limit, standing.remaining), (2_147_483_647, 2_147_483_647));
        assert_eq!(standing.reset_at_ms, at_ms);
    }
    assert!(window.is_idle(1000));
}

#[test]
fn reading_the_window_does_not_count() {
    let mut window = window(2);
    assert_eq!(window.look(7), Standing::untouched(Limit::Read, 2, 7));
    let asked = window.try_count(8).unwrap();
    assert_eq!((window.look(9), window.look(60_007)), (asked, asked));
    assert_eq!(window.look(60_008), Standing::untouched(Limit::Read, 2, 60_008));
}

#[test]
fn a_creation_counts_as_write_and_as_creation_or_as_neither() {
    let rates = Rates { write: 4, create: 2, ..Rates::default() };
    let mut windows = KeyWindows::new(&rates);
    let of = |standing: Standing| (standing.of, standing.remaining);
    assert_eq!(of(windows.try_count(KeyCharge::Create, 0).unwrap()), (Limit::Create, 1));
    assert_eq!(of(windows.try_count(KeyCharge::Create, 0).unwrap()), (Limit::Create, 0));
    let refusal = windows.try_count(KeyCharge::Create, 1).unwrap_err();
    assert_eq!((of(refusal.standing), refusal.retry_after_s), ((Limit::Create, 0), 60));
    // The refused one took no write.
    assert_eq!(of(windows.try_count(KeyCharge::Write, 2).unwrap()), (Limit::Write, 1));
    assert_eq!(of(windows.try_count(KeyCharge::Write, 10_000).unwrap()), (Limit::Write, 0));
    assert_eq!(windows.try_count(KeyCharge::Write, 10_001).unwrap_err().standing.of, Limit::Write);
    // At 60 s both have room again: two creations fell out, and two writes with them.
    assert_eq!(of(windows.try_count(KeyCharge::Create, 60_000).unwrap()), (Limit::Write, 1));
    assert_eq!(of(windows.look(60_000)), (Limit::Read, 300));
    assert!(!windows.is_idle(119_999) && windows.is_idle(120_000));
}

#[test]
fn other_writes_refuse_no_termination() {
    let rates = Rates { write: 2, ..Rates::default() };
    let mut windows = KeyWindows::new(&rates);
    let of = |standing: Standing| (standing.of, standing.remaining);
    // A termination counts as a write while writes have room.
    assert_eq!(of(windows.try_count(KeyCharge::Terminate, 0).unwrap()), (Limit::Write, 1));
    windows.try_count(KeyCharge::Write, 1).unwrap();
    assert!(windows.try_count(KeyCharge::Write, 2).is_err());
    assert_eq!(of(windows.try_count(KeyCharge::Terminate, 3).unwrap()), (Limit::Terminate, 0));
    // As many terminations as writes are allowed.
    let refusal = windows.try_count(KeyCharge::Terminate, 4).unwrap_err();
    assert_eq!((refusal.standing.of, refusal.retry_after_s), (Limit::Terminate, 60));
    assert_eq!(refusal.limit(RateSource::Common).key.as_deref(), Some("limits.write_per_minute"));
    assert!(!windows.is_idle(60_002) && windows.is_idle(60_003));
}

#[test]
fn no_limit_of_writes_is_none_of_terminations() {
    let mut windows = KeyWindows::new(&Rates::UNLIMITED);
    for _ in 0..100 {
        assert_eq!(windows.try_count(KeyCharge::Terminate, 0).unwrap().limit, NO_LIMIT);
    }
}

#[test]
fn executions_and_operations_of_a_sandbox_count_apart() {
    let rates = Rates { execute: 1, operate: 2, ..Rates::default() };
    let mut windows = SandboxWindows::default();
    let mut count = |charge, now_ms| windows.try_count(charge, &rates, now_ms);
    assert_eq!(count(SandboxCharge::Operate, 0).unwrap().remaining, 1);
    assert_eq!(count(SandboxCharge::Operate, 0).unwrap().remaining, 0);
    let refusal = count(SandboxCharge::Operate, 0).unwrap_err();
    assert_eq!(
        refusal.limit(RateSource::Common),
        ReachedLimit::set_by_operator(
            2,
            "operations per minute in this sandbox",
            "limits.operate_per_minute"
        )
    );
    assert_eq!(count(SandboxCharge::Execute, 0).unwrap().of, Limit::Execute);
    assert_eq!(count(SandboxCharge::Execute, 0).unwrap_err().standing.of, Limit::Execute);
    assert!(!windows.is_idle(59_999) && windows.is_idle(60_000));
}

#[test]
fn keys_with_different_limits_share_the_windows_of_a_sandbox() {
    let [many, few] = [5, 2].map(|execute| Rates { execute, ..Rates::default() });
    let mut windows = SandboxWindows::default();
    let mut count = |rates: &Rates, now_ms| windows.try_count(SandboxCharge::Execute, rates, now_ms);
    for second in 0..4 {
        count(&many, second * 1000).unwrap();
    }
    // Four count, so a limit of two has room again when three of them have left.
    let refusal = count(&few, 4000).unwrap_err();
    assert_eq!((refusal.standing.limit, refusal.standing.remaining), (2, 0));
    assert_eq!((refusal.standing.reset_at_ms, refusal.retry_after_s), (60_000, 58));
    assert_eq!(count(&Rates::UNLIMITED, 4000), Ok(Standing::untouched(Limit::Execute, 0, 4000)));
    assert_eq!(count(&many, 4000).unwrap().remaining, 0);
    assert!(count(&few, 62_999).is_err() && count(&few, 63_000).is_ok());
}

#[test]
fn a_key_has_its_own_limits_those_of_its_account_or_the_default() {
    let own = Rates { read: 5, ..Rates::default() };
    let table = RateTable { default: Rates::default(), accounts: [("acme".to_owned(), own)].into() };
    assert_eq!((table.of_account("acme"), table.of_account("other")), (own, Rates::default()));
    assert_eq!(table.of_key("acme", KeyLimits::OfAccount), own);
    assert_eq!(table.of_key("acme", KeyLimits::Unlimited), Rates::UNLIMITED);
    assert_eq!(table.of_key("acme", "7".parse().unwrap()), Rates::each(7));
}

#[test]
fn the_key_of_a_limit_is_the_one_that_changes_it() {
    let accounts = [("acme".to_owned(), Rates::default())].into();
    let table = RateTable { default: Rates::default(), accounts };
    let key = |account: &str, own: KeyLimits| Limit::Create.key(table.source_of_key(account, own));
    assert_eq!(key("other", KeyLimits::OfAccount), "limits.create_per_minute");
    assert_eq!(key("acme", KeyLimits::OfAccount), "limits.accounts.\"acme\".create_per_minute");
    for account in ["other", "acme"] {
        assert_eq!(key(account, "7".parse().unwrap()), "--limits of this key");
    }
}

#[test]
fn the_longer_wait_of_two_exceeded_limits_is_reported() {
    let (mut write, mut create) = (Window::new(Limit::Write, 1), Window::new(Limit::Create, 1));
    create.try_count(0).unwrap();
    write.try_count(30_000).unwrap();
    let refusal = try_count_all(&mut create, &mut [&mut write], 40_000).unwrap_err();
    assert_eq!((refusal.standing.of, refusal.retry_after_s), (Limit::Write, 50));
    assert!(try_count_all(&mut create, &mut [&mut write], 90_000).is_ok());
}

#[test]
fn the_reset_is_in_whole_seconds_of_the_wall_clock() {
    let standing = Standing { of: Limit::Read, limit: 1, remaining: 0, reset_at_ms: 60_001 };
    assert_eq!(standing.reset_unix_seconds(0), 61);
    assert_eq!(standing.reset_unix_seconds(999), 61);
    assert_eq!(standing.reset_unix_seconds(1_767_323_000_000), 1_767_323_061);
    assert_eq!(standing.reset_unix_seconds(-60_001), 0);
    assert_eq!(standing.reset_unix_seconds(i64::MIN), 0);
}

#[test]
fn the_shown_limit_is_the_one_with_the_least_share_left() {
    let (mut large, mut small) = (Window::new(Limit::Write, 100), Window::new(Limit::Create, 10));
    for _ in 0..95 {
        large.try_count(0).unwrap();
    }
    // 4 of 100 are less than 9 of 10.
    assert_eq!(try_count_all(&mut large, &mut [&mut small], 0).unwrap().of, Limit::Write);
    // No limit is the farthest of all from its end.
    let (mut none, mut some) = (Window::new(Limit::Write, 0), Window::new(Limit::Create, 1_000_000));
    assert_eq!(try_count_all(&mut none, &mut [&mut some], 0).unwrap().of, Limit::Create);
}

/// A model of the window: a list of times.
struct Model {
    limit: u32,
    counted: Vec<u64>,
}

impl Model {
    fn in_last_minute(&self, now_ms: u64) -> Vec<u64> {
        self.counted.iter().copied().filter(|at| now_ms - at < 60_000).collect()
    }

    fn has_room(&self, now_ms: u64) -> bool {
        self.limit == 0 || self.in_last_minute(now_ms).len() < self.limit as usize
    }

    fn agrees(&self, standing: &Standing, now_ms: u64) -> bool {
        if self.limit == 0 {
            return (standing.limit, standing.remaining, standing.reset_at_ms)
                == (NO_LIMIT, NO_LIMIT, now_ms);
        }
        let counted = self.in_last_minute(now_ms);
        let reset_at_ms = counted.first().map_or(now_ms, |oldest| oldest + 60_000);
        standing.limit == self.limit
            && standing.remaining as usize == self.limit as usize - counted.len()
            && standing.reset_at_ms == reset_at_ms
    }
}

/// Steps of a clock: bursts, the pace of a person, and waits that end near a minute.
fn steps() -> impl Strategy<Value = Vec<u64>> {
    let step = prop_oneof![4 => Just(0u64), 4 => 1u64..3000, 2 => 3000u64..30_000, 1 => 59_998u64..60_003];
    prop::collection::vec(step, 0..300)
}

proptest! {
    #[test]
    fn a_window_behaves_like_the_model(limit in 0u32..40, steps in steps()) {
        let (mut window, mut model) = (window(limit), Model { limit, counted: Vec::new() });
        let mut now_ms = 1_000_000;
        for step in steps {
            now_ms += step;
            prop_assert!(model.agrees(&window.look(now_ms), now_ms));
            prop_assert_eq!(window.is_idle(now_ms), limit == 0 || model.in_last_minute(now_ms).is_empty());
            match window.try_count(now_ms) {
                Ok(standing) => {
                    prop_assert!(model.has_room(now_ms));
                    model.counted.push(now_ms);
                    prop_assert!(model.agrees(&standing, now_ms));
                }
                Err(refusal) => {
                    prop_assert!(!model.has_room(now_ms));
                    prop_assert!(model.agrees(&refusal.standing, now_ms));
                    prop_assert!((1..=60).contains(&refusal.retry_after_s));
                    let second = 1000 * refusal.retry_after_s;
                    prop_assert!(model.has_room(now_ms + second));
                    prop_assert!(!model.has_room(now_ms + second - 1000));
                }
            }
        }
    }

    #[test]
    fn two_windows_count_both_or_neither(a in 0u32..20, b in 0u32..20, steps in steps()) {
        let (mut first, mut second) = (Window::new(Limit::Write, a), Window::new(Limit::Create, b));
        let mut models = [a, b].map(|limit| Model { limit, counted: Vec::new() });
        let mut now_ms = 0;
        for (turn, step) in steps.into_iter().enumerate() {
            now_ms += step;
            // Every third counts against the first alone, so that the two differ.
            if turn % 3 == 0 {
                if first.try_count(now_ms).is_ok() {
                    models[0].counted.push(now_ms);
                }
                continue;
            }
            let room = models.iter().all(|model| model.has_room(now_ms));
            let model_of = |of| usize::from(of == Limit::Create);
            match try_count_all(&mut first, &mut [&mut second], now_ms) {
                Ok(standing) => {
                    prop_assert!(room);
                    models.iter_mut().for_each(|model| model.counted.push(now_ms));
                    prop_assert!(models[model_of(standing.of)].agrees(&standing, now_ms));
                }
                Err(refusal) => {
                    prop_assert!(!room);
                    prop_assert!(models[model_of(refusal.standing.of)].agrees(&refusal.standing, now_ms));
                    let later = now_ms + 1000 * refusal.retry_after_s;
                    prop_assert!(models.iter().all(|model| model.has_room(later)));
                }
            }
            prop_assert!(models[0].agrees(&first.look(now_ms), now_ms));
            prop_assert!(models[1].agrees(&second.look(now_ms), now_ms));
        }
    }

    /// A clock that breaks its promise is held at the newest time that counts, and nothing panics (overflow checks are on).
    #[test]
    fn any_clock_is_accepted(
        limit in 1u32..5,
        times in prop::collection::vec(prop_oneof![8 => 0u64..200_000, 1 => any::<u64>()], 0..60)
    ) {
        let (mut window, mut model) = (window(limit), Model { limit, counted: Vec::new() });
        for at_ms in times {
            let present_ms = model.counted.last().map_or(at_ms, |newest| at_ms.max(*newest));
            let asked = window.try_count(at_ms);
            prop_assert_eq!(asked.is_ok(), model.has_room(present_ms));
            if asked.is_ok() {
                model.counted.push(present_ms);
            }
        }
    }
}
