//! Addresses are opened before they are answered, and names are not answered after the policy forbids them.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::inside::{ONE, TWO, TestDns, addresses, id};
use crate::upstream::{Act, a};

const THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);

async fn with_a_name() -> TestDns {
    let inside = TestDns::start().await;
    inside.upstream.answer("a.ok.example", &[a("a.ok.example", THERE.octets())]);
    inside
}

#[tokio::test]
async fn an_address_is_opened_before_it_is_answered() {
    let inside = with_a_name().await;
    *inside.kernel.slow.lock().unwrap() = Duration::from_millis(150);
    let start = Instant::now();
    let answer = inside.ask(ONE, "a.ok.example", RecordType::A).await;
    assert!(start.elapsed() >= Duration::from_millis(150));
    let [(guest, opened, lasting)] = &inside.opened()[..] else { panic!("{:?}", inside.opened()) };
    assert_eq!((*guest, &opened[..]), (ONE, &[THERE][..]));
    assert!(inside.guest(ONE).has_learnt("a.ok.example", THERE, Instant::now()));
    let ttl = Duration::from_secs(answer.answers[0].ttl.into());
    assert!(ttl > Duration::from_secs(250) && ttl < *lasting, "{ttl:?} {lasting:?}");
}

#[tokio::test]
async fn cached_answers_are_learnt_too() {
    let inside = with_a_name().await;
    inside.strict(TWO, &["a.ok.example"]);
    for from in [ONE, TWO, ONE] {
        inside.ask(from, "a.ok.example", RecordType::A).await;
    }
    assert_eq!(inside.opened().iter().map(|(guest, ..)| *guest).collect::<Vec<_>>(), [ONE, TWO, ONE]);
    assert_eq!(inside.upstream.questions().len(), 1);
}

#[tokio::test]
async fn times_to_live_do_not_exceed_the_learnt_time() {
    let inside = TestDns::start().await;
    for (name, ttl) in [("long.ok.example", 1_000_000), ("short.ok.example", 1), ("zero.ok.example", 0)] {
        let mut record = a(name, [192, 0, 2, 1]);
        record.ttl = ttl;
        inside.upstream.answer(name, &[record]);
        let answer = inside.ask(ONE, name, RecordType::A).await;
        let (_, _, lasting) = inside.opened().pop().unwrap();
        let answered_ttl = answer.answers[0].ttl;
        assert!(
            answered_ttl <= ttl && Duration::from_secs(answered_ttl.into()) < lasting,
            "{name} {answered_ttl} {lasting:?}"
        );
    }
}

#[tokio::test]
async fn a_failure_of_the_kernel_is_answered_with_an_error() {
    let inside = with_a_name().await;
    *inside.kernel.broken.lock().unwrap() = true;
    let answer = inside.ask(ONE, "a.ok.example", RecordType::A).await;
    assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::ServFail, 0));
}

#[tokio::test]
async fn a_changed_policy_holds_for_the_next_question() {
    let mut inside = with_a_name().await;
    assert_eq!(addresses(&inside.ask(ONE, "a.ok.example", RecordType::A).await), [THERE]);
    inside.strict(ONE, &["other.example"]);
    let refused = inside.ask(ONE, "a.ok.example", RecordType::A).await;
    assert_eq!((refused.response_code, refused.answers.len()), (ResponseCode::NXDomain, 0));
    assert_eq!(inside.next_refusal(), Some(("not-allowed", "a.ok.example".to_owned())));
    inside.strict(ONE, &["a.ok.example"]);
    assert_eq!(addresses(&inside.ask(ONE, "a.ok.example", RecordType::A).await), [THERE]);
    assert_eq!(inside.upstream.questions().len(), 1);
}

#[tokio::test]
async fn a_policy_change_during_the_resolution_applies() {
    let inside = with_a_name().await;
    let slow = Act::Slow(Duration::from_millis(300), vec![a("a.ok.example", THERE.octets())]);
    inside.upstream.set("a.ok.example", RecordType::A, slow);
    let changing = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        inside.strict(ONE, &[]);
    };
    let (answer, ()) = tokio::join!(inside.ask(ONE, "a.ok.example", RecordType::A), changing);
    assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::NXDomain, 0));
    assert!(inside.opened().is_empty());
    assert!(!inside.guest(ONE).may_reach(THERE, Instant::now()));
}

#[tokio::test]
async fn a_policy_change_during_the_opening_closes_again() {
    let inside = with_a_name().await;
    *inside.kernel.slow.lock().unwrap() = Duration::from_millis(300);
    let changing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        inside.strict(ONE, &[]);
    };
    let (answer, ()) = tokio::join!(inside.ask(ONE, "a.ok.example", RecordType::A), changing);
    assert_eq!(answer.answers.len(), 0);
    assert_eq!(*inside.kernel.closed.lock().unwrap(), [(ONE, vec![THERE])]);
}

#[tokio::test]
async fn a_removed_sandbox_opens_nothing_for_its_successor() {
    let inside = with_a_name().await;
    *inside.kernel.slow.lock().unwrap() = Duration::from_millis(300);
    let changing = async {
        tokio::time::sleep(Duration::from_millis(150)).await;
        inside.parts.registry.remove(ONE);
        let policy = api::EgressPolicy {
            allow: vec!["*.ok.example".to_owned()],
            default: api::EgressDefault::Deny,
            ..api::EgressPolicy::default()
        };
        inside.parts.registry.admit(&id(TWO), ONE, &policy);
    };
    let (answer, ()) = tokio::join!(inside.ask(ONE, "a.ok.example", RecordType::A), changing);
    assert_eq!(answer.answers.len(), 0);
    assert_eq!(*inside.kernel.closed.lock().unwrap(), [(ONE, vec![THERE])]);
}
