use super::*;

fn id(number: usize) -> SandboxId {
    format!("sb_{number:08}").parse().unwrap()
}

fn target(name: &str) -> Target {
    Target { name: Some(name.to_owned()), address: None, port: 443, transport: Transport::Tcp }
}

fn told(receiver: &mut mpsc::Receiver<Refusal>) -> Vec<(Option<String>, u64)> {
    std::iter::from_fn(|| receiver.try_recv().ok())
        .map(|refusal| (refusal.target.name, refusal.count))
        .collect()
}

fn some(name: &str, count: u64) -> (Option<String>, u64) {
    (Some(name.to_owned()), count)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_burst_is_told_when_it_begins_and_counted_when_it_ends() {
    let (refusals, mut receiver) = Refusals::new();
    let start = Instant::now();
    for step in 0..5 {
        refusals.tell_at(&id(1), &target("a.test"), Reason::NotAllowed, start + SECOND * step);
    }
    assert_eq!(told(&mut receiver), [some("a.test", 1)]);
    refusals.settle(start + BURST - SECOND);
    assert_eq!(told(&mut receiver), []);
    refusals.settle(start + BURST);
    assert_eq!(told(&mut receiver), [some("a.test", 4)], "also when nothing follows");
    refusals.settle(start + BURST * 2);
    assert_eq!(told(&mut receiver), []);
    assert!(refusals.lock().of.is_empty() && refusals.lock().kept == 0, "nothing is kept of it");
    refusals.tell_at(&id(1), &target("a.test"), Reason::NotAllowed, start + BURST * 2);
    assert_eq!(told(&mut receiver), [some("a.test", 1)]);
}

#[test]
fn another_name_reason_or_sandbox_is_another_burst() {
    let (refusals, mut receiver) = Refusals::new();
    let now = Instant::now();
    refusals.tell_at(&id(1), &target("a.test"), Reason::NotAllowed, now);
    refusals.tell_at(&id(1), &target("b.test"), Reason::NotAllowed, now);
    refusals.tell_at(&id(1), &target("a.test"), Reason::WrongAddress, now);
    refusals.tell_at(&id(2), &target("a.test"), Reason::NotAllowed, now);
    refusals.tell_at(&id(2), &target("a.test"), Reason::NotAllowed, now);
    assert_eq!(told(&mut receiver).len(), 4);
}

#[test]
fn a_scan_is_told_by_number_and_pushes_nobody_out() {
    let (refusals, mut receiver) = Refusals::new();
    let now = Instant::now();
    for number in 0..1000 {
        refusals.tell_at(&id(1), &target(&format!("n{number}.test")), Reason::NotAllowed, now);
    }
    assert_eq!(told(&mut receiver).len(), KEPT_OF_ONE);
    refusals.tell_at(&id(2), &target("a.test"), Reason::NotAllowed, now);
    assert_eq!(told(&mut receiver), [some("a.test", 1)]);
    refusals.settle(now + BURST);
    let rest = (None, 1000 - KEPT_OF_ONE as u64);
    assert_eq!(told(&mut receiver), [rest]);
}

#[test]
fn what_cannot_be_told_now_is_told_later() {
    let (refusals, mut receiver) = Refusals::new();
    let now = Instant::now();
    for number in 0..WAITING {
        refusals.tell_at(&id(number), &target("a.test"), Reason::NotAllowed, now);
    }
    refusals.tell_at(&id(WAITING), &target("b.test"), Reason::NotAllowed, now);
    refusals.tell_at(&id(WAITING), &target("b.test"), Reason::NotAllowed, now);
    assert!(told(&mut receiver).iter().all(|(name, _)| name.as_deref() == Some("a.test")));
    refusals.settle(now + BURST);
    assert_eq!(told(&mut receiver), [some("b.test", 2)]);
}
