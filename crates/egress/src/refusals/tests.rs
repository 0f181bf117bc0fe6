use super::*;

fn id(number: usize) -> SandboxId {
    format!("sb_{number:08}").parse().unwrap()
}

fn target(name: &str) -> RefusedTarget {
    RefusedTarget { name: Some(name.to_owned()), address: None, port: 443, transport: Transport::Tcp }
}

fn received(receiver: &mut mpsc::Receiver<Refusal>) -> Vec<(Option<String>, u64)> {
    std::iter::from_fn(|| receiver.try_recv().ok())
        .map(|refusal| (refusal.target.name, refusal.count))
        .collect()
}

fn some(name: &str, count: u64) -> (Option<String>, u64) {
    (Some(name.to_owned()), count)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_burst_is_reported_at_its_start_and_end() {
    let (refusals, mut receiver) = Refusals::new();
    let start = Instant::now();
    for step in 0..5 {
        refusals.report_at(&id(1), &target("a.test"), Reason::NotAllowed, start + SECOND * step);
    }
    assert_eq!(received(&mut receiver), [some("a.test", 1)]);
    refusals.settle(start + BURST - SECOND);
    assert_eq!(received(&mut receiver), []);
    refusals.settle(start + BURST);
    assert_eq!(received(&mut receiver), [some("a.test", 4)], "also when nothing follows");
    refusals.settle(start + BURST * 2);
    assert_eq!(received(&mut receiver), []);
    assert!(refusals.lock().of.is_empty() && refusals.lock().count_of_bursts == 0, "nothing is kept of it");
    refusals.report_at(&id(1), &target("a.test"), Reason::NotAllowed, start + BURST * 2);
    assert_eq!(received(&mut receiver), [some("a.test", 1)]);
}

#[test]
fn another_name_reason_or_sandbox_is_another_burst() {
    let (refusals, mut receiver) = Refusals::new();
    let now = Instant::now();
    refusals.report_at(&id(1), &target("a.test"), Reason::NotAllowed, now);
    refusals.report_at(&id(1), &target("b.test"), Reason::NotAllowed, now);
    refusals.report_at(&id(1), &target("a.test"), Reason::WrongAddress, now);
    refusals.report_at(&id(2), &target("a.test"), Reason::NotAllowed, now);
    refusals.report_at(&id(2), &target("a.test"), Reason::NotAllowed, now);
    assert_eq!(received(&mut receiver).len(), 4);
}

#[test]
fn a_scan_is_counted_together_and_displaces_no_other() {
    let (refusals, mut receiver) = Refusals::new();
    let now = Instant::now();
    for number in 0..1000 {
        refusals.report_at(&id(1), &target(&format!("n{number}.test")), Reason::NotAllowed, now);
    }
    assert_eq!(received(&mut receiver).len(), MAX_BURSTS_OF_ONE);
    refusals.report_at(&id(2), &target("a.test"), Reason::NotAllowed, now);
    assert_eq!(received(&mut receiver), [some("a.test", 1)]);
    refusals.settle(now + BURST);
    let rest = (None, 1000 - MAX_BURSTS_OF_ONE as u64);
    assert_eq!(received(&mut receiver), [rest]);
}

#[test]
fn unsent_reports_are_sent_later() {
    let (refusals, mut receiver) = Refusals::new();
    let now = Instant::now();
    for number in 0..QUEUE {
        refusals.report_at(&id(number), &target("a.test"), Reason::NotAllowed, now);
    }
    refusals.report_at(&id(QUEUE), &target("b.test"), Reason::NotAllowed, now);
    refusals.report_at(&id(QUEUE), &target("b.test"), Reason::NotAllowed, now);
    assert!(received(&mut receiver).iter().all(|(name, _)| name.as_deref() == Some("a.test")));
    refusals.settle(now + BURST);
    assert_eq!(received(&mut receiver), [some("b.test", 2)]);
}
