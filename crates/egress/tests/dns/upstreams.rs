//! Upstreams that are slow, wrong, or missing.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{Record, RecordType};
use tokio::net::UdpSocket;

use crate::inside::{ONE, TestDns, addresses, extended_error};
use crate::upstream::{Act, Upstream, a};

const NAME: &str = "a.ok.example";

fn there() -> Vec<Record> {
    vec![a(NAME, [192, 0, 2, 1])]
}

#[tokio::test]
async fn a_silent_upstream_is_a_failure_in_time() {
    let inside = TestDns::start().await;
    inside.upstream.set(NAME, RecordType::A, Act::Silent);
    let start = Instant::now();
    for kind in [RecordType::A, RecordType::AAAA] {
        let answer = inside.ask(ONE, NAME, kind).await;
        assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::ServFail, 0));
        assert_eq!(extended_error(&answer).unwrap().0, 23);
    }
    assert!(start.elapsed() < Duration::from_millis(4300), "{:?}", start.elapsed());
    // A failure is not cached.
    inside.upstream.set(NAME, RecordType::A, Act::Answer(there()));
    assert_eq!(inside.ask(ONE, NAME, RecordType::A).await.answers.len(), 1);
}

#[tokio::test]
async fn a_slow_upstream_is_awaited() {
    let inside = TestDns::start().await;
    for millis in [1200, 1600] {
        let name = format!("n{millis}.ok.example");
        let slow = Act::Slow(Duration::from_millis(millis), vec![a(&name, [192, 0, 2, 1])]);
        inside.upstream.set(&name, RecordType::A, slow);
        assert_eq!(addresses(&inside.ask(ONE, &name, RecordType::A).await), [Ipv4Addr::new(192, 0, 2, 1)]);
        // And cached.
        let questions = inside.upstream.questions().len();
        assert_eq!(inside.ask(ONE, &name, RecordType::A).await.answers.len(), 1);
        assert_eq!(inside.upstream.questions().len(), questions);
    }
}

/// Two are asked at first.
#[tokio::test]
async fn one_upstream_of_three_is_enough() {
    let silent =
        [UdpSocket::bind("127.0.0.1:0").await.unwrap(), UdpSocket::bind("127.0.0.1:0").await.unwrap()];
    let upstream = Upstream::start().await;
    upstream.answer(NAME, &there());
    let mut servers: Vec<_> = silent.iter().map(|socket| socket.local_addr().unwrap()).collect();
    servers.push(upstream.address);
    let inside = TestDns::before(upstream, servers).await;
    let start = Instant::now();
    assert_eq!(inside.ask(ONE, NAME, RecordType::A).await.answers.len(), 1);
    assert!(start.elapsed() < Duration::from_millis(1700), "{:?}", start.elapsed());
}

#[tokio::test]
async fn an_unreachable_upstream_is_a_failure() {
    let nobody = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let inside = TestDns::before(Upstream::start().await, vec![nobody]).await;
    let start = Instant::now();
    assert_eq!(inside.ask(ONE, NAME, RecordType::A).await.response_code, ResponseCode::ServFail);
    assert!(start.elapsed() < Duration::from_millis(2300), "{:?}", start.elapsed());
}

#[tokio::test]
async fn one_upstream_of_two_is_enough() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::start().await;
    upstream.answer(NAME, &there());
    let servers = vec![silent.local_addr().unwrap(), upstream.address];
    let inside = TestDns::before(upstream, servers).await;
    let start = Instant::now();
    assert_eq!(inside.ask(ONE, NAME, RecordType::A).await.answers.len(), 1);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[tokio::test]
async fn a_refusal_of_the_upstream_is_a_failure() {
    let inside = TestDns::start().await;
    for (number, code) in
        [ResponseCode::ServFail, ResponseCode::Refused, ResponseCode::FormErr, ResponseCode::NotImp]
            .into_iter()
            .enumerate()
    {
        let name = format!("n{number}.ok.example");
        inside.upstream.set(&name, RecordType::A, Act::Code(code));
        assert_eq!(
            inside.ask(ONE, &name, RecordType::A).await.response_code,
            ResponseCode::ServFail,
            "{code}"
        );
    }
}

#[tokio::test]
async fn an_answer_to_another_question_is_ignored() {
    let inside = TestDns::start().await;
    inside.upstream.set(NAME, RecordType::A, Act::WrongId(there(), Some(Duration::from_millis(50))));
    let answer = inside.ask(ONE, NAME, RecordType::A).await;
    assert_eq!(addresses(&answer), [Ipv4Addr::new(192, 0, 2, 1)]);
    inside.upstream.set("b.ok.example", RecordType::A, Act::WrongId(Vec::new(), None));
    assert_eq!(inside.ask(ONE, "b.ok.example", RecordType::A).await.response_code, ResponseCode::ServFail);
    // Nor records of another name.
    inside.upstream.answer("c.ok.example", &[a("other.example", [203, 0, 113, 1])]);
    assert_eq!(inside.ask(ONE, "c.ok.example", RecordType::A).await.answers.len(), 0);
}

#[tokio::test]
async fn truncated_answers_are_fetched_over_tcp() {
    let inside = TestDns::start().await;
    inside.upstream.set(NAME, RecordType::A, Act::OnlyTcp(there()));
    let answer = inside.ask(ONE, NAME, RecordType::A).await;
    assert_eq!(addresses(&answer), [Ipv4Addr::new(192, 0, 2, 1)]);
    let over: Vec<&str> = inside.upstream.questions().iter().map(|(.., over)| *over).collect();
    assert_eq!(over, ["udp", "tcp"]);
}

#[tokio::test]
async fn concurrent_equal_questions_are_coalesced() {
    let inside = TestDns::start().await;
    inside.upstream.set(NAME, RecordType::A, Act::Slow(Duration::from_millis(150), there()));
    let (one, two, three) = tokio::join!(
        inside.ask(ONE, NAME, RecordType::A),
        inside.ask(ONE, NAME, RecordType::AAAA),
        inside.ask(ONE, NAME, RecordType::A),
    );
    assert_eq!((one.answers.len(), two.answers.len(), three.answers.len()), (1, 0, 1));
    assert_eq!(inside.upstream.questions().len(), 1);
}

#[tokio::test]
async fn times_to_live_decrease() {
    let inside = TestDns::start().await;
    inside.upstream.answer(NAME, &there());
    let first = inside.ask(ONE, NAME, RecordType::A).await.answers[0].ttl;
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let later = inside.ask(ONE, NAME, RecordType::A).await.answers[0].ttl;
    assert_eq!((first, later), (300, 298));
}
