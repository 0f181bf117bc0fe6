//! Limits counted from several threads, and windows that go.

use std::sync::atomic::{AtomicU32, Ordering};

use rules::KeyCharge;

use super::*;

const READ: Charge = Charge::Key(KeyCharge::Read);
const WRITE: Charge = Charge::Key(KeyCharge::Write);
const CREATE: Charge = Charge::Key(KeyCharge::Create);
const EXECUTE: Charge = Charge::Sandbox(SandboxCharge::Execute);
const OPERATE: Charge = Charge::Sandbox(SandboxCharge::Operate);
const AHEAD: i64 = 1_000_000_000_500;
const BOX: Option<&str> = Some("sb_aaaaaaaa");

fn caller(account: &str, key: &str) -> Caller {
    let limits = KeyLimits::default();
    Caller { account: account.into(), key_id: key.into(), scopes: rules::Scopes::ALL, limits }
}

fn at(ms: u64) -> Now {
    Now { ms, wall_ahead_ms: AHEAD }
}

fn windows(limiter: &Limiter) -> usize {
    let count = |shard: &Mutex<Shard>| {
        let shard = shard.lock().unwrap();
        shard.keys.len() + shard.accounts.values().map(|account| account.own.len() + 1).sum::<usize>()
    };
    limiter.shards.iter().map(count).sum()
}

#[test]
fn four_keys_at_once_get_exactly_their_limits() {
    let limiter = Limiter::new(Rates::default());
    let granted: [AtomicU32; 4] = Default::default();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (limiter, granted) = (&limiter, &granted[thread % 4]);
            let caller = caller("one", &format!("key_{}", thread % 4));
            scope.spawn(move || {
                for _ in 0..400 {
                    match limiter.count(&caller, READ, None) {
                        Ok(headers) => {
                            assert_eq!(headers.limit, 300);
                            granted.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(refused) => assert!((1..=60).contains(&refused.retry_after_s)),
                    }
                }
            });
        }
    });
    assert_eq!(granted.map(AtomicU32::into_inner), [300; 4]);
}

#[test]
fn executions_count_per_sandbox_for_all_keys() {
    let limiter = Limiter::new(Rates::default());
    let granted = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (limiter, granted) = (&limiter, &granted);
            let caller = caller("one", &format!("key_{thread}"));
            scope.spawn(move || {
                for _ in 0..100 {
                    if limiter.count(&caller, EXECUTE, BOX).is_ok() {
                        granted.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    assert_eq!(granted.into_inner(), 100);
    let key = caller("one", "key_0");
    assert!(limiter.count(&key, EXECUTE, Some("sb_bbbbbbbb")).is_ok());
    assert_eq!(limiter.count(&key, READ, None).unwrap().remaining, 299, "executions count against no key");
    assert!(limiter.count(&caller("two", "key_9"), EXECUTE, BOX).is_ok(), "another account's window");
}

#[test]
fn operations_in_a_sandbox_use_up_neither_its_executions_nor_the_writes_of_the_key() {
    let limiter = Limiter::new(Rates::default());
    let key = caller("one", "key_1");
    for remaining in (0..600).rev() {
        let headers = limiter.count_at(&key, OPERATE, BOX, at(0)).unwrap();
        assert_eq!((headers.limit, headers.remaining), (600, remaining));
    }
    let refused = limiter.count_at(&key, OPERATE, BOX, at(1)).unwrap_err();
    assert_eq!(refused.limit.key.as_deref(), Some("limits.operate_per_minute"));
    assert_eq!(limiter.count_at(&key, EXECUTE, BOX, at(1)).unwrap().remaining, 99);
    assert_eq!(limiter.count_at(&key, WRITE, None, at(1)).unwrap().remaining, 59);
    assert!(limiter.count_at(&key, OPERATE, Some("sb_bbbbbbbb"), at(1)).is_ok(), "another sandbox");
}

#[test]
fn a_key_has_its_own_limits_and_an_account_has_its_own() {
    let few = Rates { read: 1, execute: 1, ..Rates::default() };
    let accounts = [("few".to_owned(), few)].into();
    let limiter = Limiter::new(RateTable { default: Rates::default(), accounts });
    let of_account = caller("few", "key_1");
    assert_eq!(limiter.count_at(&of_account, READ, None, at(0)).unwrap().limit, 1);
    assert!(limiter.count_at(&of_account, READ, None, at(0)).is_err());
    assert_eq!(limiter.count_at(&caller("other", "key_2"), READ, None, at(0)).unwrap().limit, 300);
    let unlimited = Caller { limits: KeyLimits::Unlimited, ..caller("few", "key_3") };
    for charge in [READ, WRITE, CREATE, EXECUTE, OPERATE] {
        assert_eq!(limiter.count_at(&unlimited, charge, BOX, at(0)).unwrap().limit, rules::NO_LIMIT);
    }
    let two = Caller { limits: "2".parse().unwrap(), ..caller("few", "key_4") };
    for charge in [READ, CREATE, EXECUTE] {
        assert_eq!(limiter.count_at(&two, charge, BOX, at(0)).unwrap().limit, 2, "{charge:?}");
    }
    // All keys count in the window of the sandbox; a request without a key has the limit of the account.
    assert!(limiter.count_at(&two, EXECUTE, BOX, at(0)).is_ok());
    let of_sandbox = |caller: &Caller| limiter.count_at(caller, EXECUTE, BOX, at(0)).unwrap_err().limit;
    assert_eq!(of_sandbox(&of_account).key.as_deref(), Some("limits.accounts.\"few\".execute_per_minute"));
    assert_eq!((of_sandbox(&two).value, of_sandbox(&two).key.as_deref()), (2, Some("--limits of this key")));
    let account: Arc<str> = "few".into();
    let other: SandboxId = "sb_bbbbbbbb".parse().unwrap();
    let count = |own| limiter.count_execution(&account, own, &other);
    assert!(count(KeyLimits::OfAccount).is_ok());
    let refused = count(KeyLimits::OfAccount).unwrap_err();
    assert_eq!(refused.limit.value, 1);
    assert_eq!(refused.limit.key.as_deref(), Some("limits.accounts.\"few\".execute_per_minute"));
    // A token has the limits of its key.
    assert!(count(two.limits).is_ok() && count(unlimited.limits).is_ok());
    let refused = count(two.limits).unwrap_err();
    assert_eq!((refused.limit.value, refused.limit.key.as_deref()), (2, Some("--limits of this key")));
}

#[test]
fn retry_after_is_sufficient_and_refusals_do_not_count() {
    let limiter = Limiter::new(Rates { create: 2, ..Rates::default() });
    let key = caller("one", "key_1");
    assert!(limiter.count_at(&key, CREATE, None, at(1_000)).is_ok());
    let headers = limiter.count_at(&key, CREATE, None, at(1_700)).unwrap();
    assert_eq!((headers.limit, headers.remaining), (2, 0), "of the nearer limit");
    assert_eq!(headers.reset_s, 1_000_000_062, "61.0 s on our clock, rounded up on the wall's");
    let refused = limiter.count_at(&key, CREATE, None, at(30_500)).unwrap_err();
    assert_eq!((refused.retry_after_s, refused.headers.remaining), (31, 0));
    assert!(limiter.count_at(&key, CREATE, None, at(60_999)).is_err());
    assert!(limiter.count_at(&key, CREATE, None, at(61_500)).is_ok());
    assert_eq!(limiter.count_at(&key, WRITE, None, at(61_500)).unwrap().remaining, 57);
}

#[test]
fn idle_rate_windows_are_dropped() {
    let limiter = Limiter::new(Rates::default());
    let key = caller("one", "key_1");
    limiter.count_at(&key, READ, None, at(0)).unwrap();
    limiter.count_at(&key, EXECUTE, BOX, at(0)).unwrap();
    limiter.count_at(&key, EXECUTE, Some("sb_bbbbbbbb"), at(5_000)).unwrap();
    limiter.sweep_at(59_999);
    assert_eq!(windows(&limiter), 4);
    limiter.sweep_at(60_000);
    assert_eq!(windows(&limiter), 2, "the later sandbox, in its account");
    limiter.sweep_at(65_000);
    assert_eq!(windows(&limiter), 0);
}

#[test]
fn unknown_ids_use_bounded_memory() {
    let limiter = Limiter::new(Rates::default());
    let key = caller("one", "key_1");
    for n in 0..SANDBOXES_OF_AN_ACCOUNT + 100 {
        let id = format!("sb_{n:08}");
        assert!(limiter.count_at(&key, EXECUTE, Some(&id), at(0)).is_ok());
    }
    assert_eq!(windows(&limiter), SANDBOXES_OF_AN_ACCOUNT + 1);
    assert!(limiter.count_at(&key, EXECUTE, Some("sb_99999999"), at(0)).is_err(), "the shared one is full");
    assert!(limiter.count_at(&key, EXECUTE, Some("sb_00000000"), at(0)).is_ok(), "an own one is not");
    assert!(limiter.count_at(&caller("two", "k"), EXECUTE, Some("sb_99999999"), at(0)).is_ok());
    for id in ["", "../../x", "sb_UPPERCASE"] {
        assert_eq!(limiter.count_at(&key, EXECUTE, Some(id), at(0)).unwrap().remaining, 100);
    }
}

#[test]
fn no_limit_is_shown_as_the_largest_number() {
    let limiter = Limiter::new(Rates::UNLIMITED);
    let key = caller("one", "key_1");
    for charge in [READ, WRITE, CREATE, EXECUTE, OPERATE] {
        for _ in 0..1000 {
            let headers = limiter.count(&key, charge, BOX).unwrap();
            assert_eq!((headers.limit, headers.remaining), (2_147_483_647, 2_147_483_647));
        }
    }
    assert_eq!(limiter.uncounted().limit, 2_147_483_647);
}

#[test]
fn uncounted_responses_show_the_read_limit() {
    let limiter = Limiter::new(Rates::default());
    let unix = || base::unix_ms() / 1000;
    let before = unix();
    let headers = limiter.uncounted();
    assert_eq!((headers.limit, headers.remaining), (300, 300));
    assert!((before..=unix() + 1).contains(&headers.reset_s), "{headers:?}");
}
