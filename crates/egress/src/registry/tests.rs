use api::EgressDefault;

use super::*;

const GUEST: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 2);
const ONE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const TWO: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const TTL: Duration = Duration::from_secs(300);

fn policy(allow: &[&str], default: EgressDefault) -> EgressPolicy {
    EgressPolicy {
        allow: allow.iter().map(|name| (*name).to_owned()).collect(),
        default,
        ..EgressPolicy::default()
    }
}

fn deny(allow: &[&str]) -> EgressPolicy {
    policy(allow, EgressDefault::Deny)
}

fn id(text: &str) -> SandboxId {
    text.parse().unwrap()
}

fn admitted(allow: &[&str]) -> (PolicyRegistry, Arc<Guest>) {
    let guests = PolicyRegistry::default();
    assert!(guests.admit(&id("sb_00000001"), GUEST, &deny(allow)).is_empty());
    let guest = guests.find(GUEST).unwrap();
    (guests, guest)
}

#[test]
fn an_answer_expires_and_is_remembered_longer() {
    let (_guests, guest) = admitted(&["a.test", "b.test"]);
    let now = Instant::now();
    assert_eq!(guest.learn("a.test", &[ONE], Duration::from_secs(1), now), MIN_TTL);
    assert_eq!(guest.learn("b.test", &[ONE, TWO], TTL * 100, now), MAX_TTL);
    assert!(guest.has_learnt("a.test", ONE, now + MIN_TTL / 2));
    assert!(!guest.has_learnt("a.test", TWO, now) && !guest.has_learnt("b.test", GUEST, now));
    let later = now + MIN_TTL * 2;
    assert!(!guest.has_learnt("a.test", ONE, later) && guest.was_answered("a.test", ONE));
    assert!(guest.may_reach(ONE, later), "by the other name");
    assert!(!guest.may_reach(ONE, now + MAX_TTL));
    // A shorter one does not take back what a longer one has given.
    guest.learn("b.test", &[TWO], Duration::ZERO, now);
    assert!(guest.has_learnt("b.test", TWO, later));
}

#[test]
fn learnt_addresses_are_limited() {
    let (_guests, guest) = admitted(&["*.test"]);
    let now = Instant::now();
    let address = |number: u32| Ipv4Addr::from(0xc000_0200 + number);
    for number in 0..5000 {
        guest.learn(&format!("n{number}.test"), &[address(number)], TTL, now);
    }
    assert!(guest.may_reach(address(4095), now) && !guest.may_reach(address(4096), now));
    // What counts no more makes place.
    let later = now + TTL + Duration::from_secs(1);
    guest.learn("late.test", &[TWO], TTL, later);
    assert!(guest.may_reach(TWO, later) && !guest.was_answered("n0.test", address(0)));
}

#[test]
fn a_new_policy_removes_addresses_and_cuts_connections() {
    let (guests, guest) = admitted(&["a.test", "b.test"]);
    let now = Instant::now();
    guest.learn("a.test", &[ONE, TWO], TTL, now);
    guest.learn("b.test", &[TWO], TTL, now);
    let by_a = guest.enter(Passing::Name("a.test".into(), ONE));
    let by_b = guest.enter(Passing::Name("b.test".into(), TWO));
    let (to_one, to_two) = (guest.enter(Passing::Address(ONE)), guest.enter(Passing::Address(TWO)));
    assert!([&by_a, &by_b, &to_one, &to_two].iter().all(|one| !one.cut.is_cancelled()));
    assert_eq!(
        guests.admit(&guest.id, GUEST, &deny(&["b.test"])),
        [ONE],
        "the other has a name that is left"
    );
    assert!(by_a.cut.is_cancelled() && to_one.cut.is_cancelled());
    assert!(!by_b.cut.is_cancelled() && !to_two.cut.is_cancelled());
    assert!(guest.may_reach(TWO, now) && !guest.may_reach(ONE, now));
    assert_eq!(guest.connections(), 4);
    drop((by_a, by_b, to_one, to_two));
    assert_eq!(guest.connections(), 0);
}

#[test]
fn networks_keep_and_cut_connections() {
    let (guests, guest) = admitted(&["a.test"]);
    guest.learn("a.test", &[ONE, TWO], TTL, Instant::now());
    let by_name = guest.enter(Passing::Name("a.test".into(), ONE));
    let by_address = guest.enter(Passing::Address(TWO));
    let change = |policy: EgressPolicy| guests.admit(&guest.id, GUEST, &policy);
    let networks = |entries: &[Ipv4Addr]| entries.iter().map(Ipv4Addr::to_string).collect();
    change(EgressPolicy { allow_networks: networks(&[ONE, TWO]), ..deny(&[]) });
    assert!(!by_name.cut.is_cancelled() && !by_address.cut.is_cancelled());
    let unlisted = guest.enter(Passing::Name("b.test".into(), TWO));
    assert!(!unlisted.cut.is_cancelled(), "its address is in an allowed network");
    let open = policy(&["a.test"], EgressDefault::Allow);
    change(EgressPolicy { deny_networks: networks(&[ONE]), ..open });
    assert!(by_name.cut.is_cancelled(), "a name opens no denied network under default allow");
    assert!(!by_address.cut.is_cancelled());
    assert!(guest.enter(Passing::Name("a.test".into(), ONE)).cut.is_cancelled());
    change(deny(&["a.test"]));
    assert!(unlisted.cut.is_cancelled());
}

#[test]
fn a_connection_outlives_its_answer() {
    let (guests, guest) = admitted(&["*.test"]);
    let past = Instant::now();
    guest.learn("a.test", &[ONE], TTL, past);
    let open = guest.enter(Passing::Address(ONE));
    // Its answer is pushed out.
    for number in 0..4096 {
        guest.learn(&format!("n{number}.test"), &[TWO], TTL, past + TTL * 2);
    }
    assert!(!guest.was_answered("a.test", ONE));
    guests.admit(&guest.id, GUEST, &deny(&["a.test"]));
    assert!(!open.cut.is_cancelled());
    guests.admit(&guest.id, GUEST, &deny(&["b.test"]));
    assert!(open.cut.is_cancelled());
}

#[test]
fn late_answers_and_connections_are_dropped() {
    let (guests, guest) = admitted(&["a.test"]);
    let now = Instant::now();
    guest.learn("a.test", &[ONE], TTL, now);
    guests.admit(&guest.id, GUEST, &deny(&[]));
    assert_eq!(guest.learn("a.test", &[ONE], TTL, now), Duration::ZERO);
    assert!(!guest.was_answered("a.test", ONE));
    assert!(guest.enter(Passing::Name("a.test".into(), ONE)).cut.is_cancelled());
    assert!(guest.enter(Passing::Address(ONE)).cut.is_cancelled());
    // The connections of a removed sandbox are cut even if its policy allows everything.
    guests.admit(&guest.id, GUEST, &policy(&[], EgressDefault::Allow));
    let open = guest.enter(Passing::Address(TWO));
    assert!(!open.cut.is_cancelled() && !guest.is_removed());
    guests.remove(GUEST);
    assert!(open.cut.is_cancelled() && guest.is_removed() && guests.find(GUEST).is_none());
    assert!(guest.enter(Passing::Address(TWO)).cut.is_cancelled());
    assert_eq!(guest.learn("a.test", &[ONE], TTL, now), Duration::ZERO);
}

#[test]
fn another_sandbox_at_the_same_address_inherits_nothing() {
    let (guests, guest) = admitted(&["a.test"]);
    guest.learn("a.test", &[ONE], TTL, Instant::now());
    let open = guest.enter(Passing::Name("a.test".into(), ONE));
    assert_eq!(guests.admit(&id("sb_00000002"), GUEST, &deny(&["a.test"])), [ONE]);
    assert!(open.cut.is_cancelled() && guest.is_removed());
    let next = guests.find(GUEST).unwrap();
    assert!(!next.was_answered("a.test", ONE) && next.connections() == 0);
}

#[test]
fn concurrent_changes_leave_nothing_forbidden() {
    for _ in 0..200 {
        let (guests, guest) = admitted(&["a.test"]);
        let (ours, theirs) = (guest.clone(), guest.clone());
        let entering = std::thread::spawn(move || {
            let learnt = ours.learn("a.test", &[ONE], TTL, Instant::now());
            (learnt, ours.enter(Passing::Name("a.test".into(), ONE)))
        });
        guests.admit(&theirs.id, GUEST, &deny(&[]));
        let (_, open) = entering.join().unwrap();
        assert!(open.cut.is_cancelled());
        assert!(!guest.was_answered("a.test", ONE));
    }
}
