//! Answers that point to closed addresses.

use std::net::Ipv4Addr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::RecordType;

use crate::inside::{ONE, TWO, TestDns, addresses, extended_error};
use crate::upstream::{a, cname};

const CLOSED: [[u8; 4]; 10] = [
    [10, 0, 0, 1],
    [127, 0, 0, 1],
    [169, 254, 169, 254],
    [192, 168, 1, 1],
    [100, 64, 0, 1],
    [0, 0, 0, 0],
    [224, 0, 0, 251],
    // Another sandbox.
    [10, 64, 0, 9],
    [255, 255, 255, 255],
    [168, 63, 129, 16],
];

#[tokio::test]
async fn closed_addresses_are_not_answered() {
    let mut inside = TestDns::start().await;
    inside.open(TWO);
    for (number, address) in CLOSED.into_iter().enumerate() {
        let name = format!("n{number}.ok.example");
        inside.upstream.answer(&name, &[a(&name, address)]);
        for from in [ONE, TWO] {
            for kind in [RecordType::A, RecordType::AAAA] {
                let answer = inside.ask(from, &name, kind).await;
                assert_eq!(
                    (answer.response_code, answer.answers.len()),
                    (ResponseCode::NXDomain, 0),
                    "{name}"
                );
                let (number, text) = extended_error(&answer).unwrap();
                assert_eq!(number, 15);
                assert!(!text.contains(&Ipv4Addr::from(address).to_string()), "{text}");
            }
            assert_eq!(inside.next_refusal(), Some(("closed-answer", name.clone())));
        }
    }
    assert!(inside.opened().is_empty());
}

#[tokio::test]
async fn closed_addresses_behind_aliases_are_not_answered() {
    let mut inside = TestDns::start().await;
    inside.upstream.answer(
        "c.ok.example",
        &[cname("c.ok.example", "db.corp.example"), a("db.corp.example", [10, 1, 2, 3])],
    );
    inside.upstream.answer(
        "m.ok.example",
        &[a("m.ok.example", [192, 0, 2, 1]), a("m.ok.example", [169, 254, 169, 254])],
    );
    for name in ["c.ok.example", "m.ok.example"] {
        let answer = inside.ask(ONE, name, RecordType::A).await;
        assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::NXDomain, 0), "{name}");
        assert_eq!(inside.next_refusal(), Some(("closed-answer", name.to_owned())));
    }
    // The server follows an alias that the upstream does not follow, with the same checks.
    inside.upstream.set(
        "x.ok.example",
        RecordType::A,
        crate::upstream::Act::Answer(vec![cname("x.ok.example", "y.far.example")]),
    );
    inside.upstream.answer("y.far.example", &[a("y.far.example", [127, 0, 0, 1])]);
    assert_eq!(inside.ask(ONE, "x.ok.example", RecordType::A).await.response_code, ResponseCode::NXDomain);
    assert!(inside.opened().is_empty());
}

#[tokio::test]
async fn cached_answers_are_checked_again() {
    let inside = TestDns::start().await;
    inside.upstream.answer("h.ok.example", &[a("h.ok.example", [198, 51, 100, 4])]);
    assert_eq!(inside.ask(ONE, "h.ok.example", RecordType::A).await.answers.len(), 1);
    inside.kernel.of_host.lock().unwrap().push([198, 51, 100, 4].into());
    assert_eq!(inside.ask(ONE, "h.ok.example", RecordType::A).await.response_code, ResponseCode::NXDomain);
    assert_eq!(inside.upstream.questions().len(), 1);
}

#[tokio::test]
async fn addresses_opened_by_the_operator_are_answered() {
    let inside = TestDns::start().await;
    inside.upstream.answer("db.ok.example", &[a("db.ok.example", [192, 168, 7, 5])]);
    let answer = inside.ask(ONE, "db.ok.example", RecordType::A).await;
    assert_eq!(addresses(&answer), [Ipv4Addr::new(192, 168, 7, 5)]);
}
