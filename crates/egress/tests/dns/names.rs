//! The answer to each kind of question.

use std::net::Ipv4Addr;

use hickory_proto::op::ResponseCode;
use hickory_proto::rr::{RData, RecordType};

use crate::inside::{ONE, STRANGER, TWO, TestDns, addresses, extended_error};
use crate::upstream::{Act, a, cname, mx, txt};

#[tokio::test]
async fn an_allowed_name_is_answered_with_its_aliases() {
    let inside = TestDns::start().await;
    inside.upstream.answer(
        "www.ok.example",
        &[cname("www.ok.example", "cdn.far.example"), a("cdn.far.example", [192, 0, 2, 7])],
    );
    let answer = inside.ask(ONE, "WwW.ok.Example", RecordType::A).await;
    assert_eq!(answer.response_code, ResponseCode::NoError);
    assert!(answer.recursion_available && !answer.authoritative && !answer.truncation);
    assert_eq!(answer.answers.len(), 2);
    assert_eq!(answer.answers[0].name.to_ascii(), "WwW.ok.Example.");
    assert_eq!(addresses(&answer), [Ipv4Addr::new(192, 0, 2, 7)]);

    for kind in [RecordType::AAAA, RecordType::HTTPS, RecordType::SVCB] {
        let nothing = inside.ask(ONE, "www.ok.example", kind).await;
        assert_eq!(nothing.response_code, ResponseCode::NoError, "{kind}");
        assert!(nothing.answers.iter().all(|record| record.record_type() == RecordType::CNAME), "{kind}");
        assert!(matches!(nothing.authorities[0].data, RData::SOA(_)), "{kind}");
    }
    assert_eq!(inside.upstream.questions().len(), 1, "one question returns all records");
}

#[tokio::test]
async fn a_missing_name_is_missing_for_all_types() {
    let inside = TestDns::start().await;
    for kind in [RecordType::A, RecordType::AAAA, RecordType::HTTPS, RecordType::MX] {
        let answer = inside.ask(ONE, "no.ok.example", kind).await;
        assert_eq!(answer.response_code, ResponseCode::NXDomain, "{kind}");
        assert_eq!(answer.authorities.len(), 1, "{kind}");
    }
    inside.upstream.answer("ok.example", &[txt("ok.example", "x")]);
    for kind in [RecordType::A, RecordType::AAAA, RecordType::MX] {
        let answer = inside.ask(ONE, "ok.example", kind).await;
        assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::NoError, 0), "{kind}");
        assert_eq!(answer.authorities[0].name.to_ascii(), "example.", "{kind}");
        assert_eq!(answer.authorities[0].ttl, 30, "{kind}");
    }
}

#[tokio::test]
async fn other_types_of_allowed_names_pass() {
    let mut inside = TestDns::start().await;
    inside.upstream.answer("ok.example", &[mx("ok.example", "mail.ok.example")]);
    inside.upstream.answer("ok.example", &[txt("ok.example", "hello")]);
    inside.upstream.answer("w.ok.example", &[cname("w.ok.example", "far.example")]);
    for (name, kind) in
        [("ok.example", RecordType::MX), ("ok.example", RecordType::TXT), ("w.ok.example", RecordType::CNAME)]
    {
        let answer = inside.ask(ONE, name, kind).await;
        assert_eq!(answer.answers.len(), 1, "{name} {kind}");
        assert_eq!(answer.answers[0].record_type(), kind);
    }
    assert!(inside.opened().is_empty() && inside.next_refusal().is_none());
}

#[tokio::test]
async fn a_refused_name_is_answered_without_upstream() {
    let mut inside = TestDns::start().await;
    for kind in [
        RecordType::A,
        RecordType::AAAA,
        RecordType::TXT,
        RecordType::NULL,
        RecordType::ANY,
        RecordType::from(65_399),
    ] {
        let answer = inside.ask(ONE, "secret.data.evil.example", kind).await;
        assert_eq!(answer.response_code, ResponseCode::NXDomain, "{kind}");
        assert_eq!(extended_error(&answer), Some((15, "the policy does not list the name".to_owned())));
        assert!(answer.authorities.is_empty(), "else it would be kept when the policy changes");
    }
    assert_eq!(inside.upstream.questions(), []);
    assert_eq!(inside.next_refusal(), Some(("not-allowed", "secret.data.evil.example".to_owned())));
    assert_eq!(inside.next_refusal(), None, "once a burst");
}

#[tokio::test]
async fn special_names_have_local_answers() {
    let mut inside = TestDns::start().await;
    inside.open(TWO);
    for from in [ONE, TWO] {
        assert_eq!(
            addresses(&inside.ask(from, "localhost", RecordType::A).await),
            [Ipv4Addr::new(127, 0, 0, 1)]
        );
        let none = inside.ask(from, "localhost", RecordType::AAAA).await;
        assert_eq!((none.response_code, none.answers.len()), (ResponseCode::NoError, 0));
        for (name, kind) in [
            ("1.2.0.192.in-addr.arpa", RecordType::PTR),
            ("1.0.0.10.in-addr.arpa", RecordType::PTR),
            ("use-application-dns.net", RecordType::A),
        ] {
            assert_eq!(inside.ask(from, name, kind).await.response_code, ResponseCode::NXDomain, "{name}");
        }
    }
    let anything = inside.ask(ONE, "ok.example", RecordType::ANY).await;
    assert_eq!(anything.answers[0].record_type(), RecordType::HINFO);
    assert_eq!(inside.ask(ONE, "ok.example", RecordType::AXFR).await.response_code, ResponseCode::Refused);
    assert_eq!((inside.upstream.questions(), inside.next_refusal()), (Vec::new(), None));
}

#[tokio::test]
async fn unknown_sources_get_no_answer() {
    let inside = TestDns::start().await;
    let question = crate::inside::question("ok.example", RecordType::A).to_vec().unwrap();
    let socket = tokio::net::UdpSocket::bind((STRANGER, 0)).await.unwrap();
    socket.send_to(&question, inside.server).await.unwrap();
    // A known source is answered by then.
    inside.ask(ONE, "localhost", RecordType::A).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert!(socket.try_recv(&mut [0; 16]).is_err());
    assert_eq!(inside.upstream.questions(), []);
}

#[tokio::test]
async fn default_allow_resolves_names_without_learning() {
    let inside = TestDns::start().await;
    inside.open(TWO);
    inside.upstream.answer("any.example", &[a("any.example", [203, 0, 113, 5])]);
    let answer = inside.ask(TWO, "any.example", RecordType::A).await;
    assert_eq!(addresses(&answer), [Ipv4Addr::new(203, 0, 113, 5)]);
    assert_eq!(answer.answers[0].ttl, 300);
    assert!(inside.opened().is_empty());
}

#[tokio::test]
async fn names_of_services_are_not_host_names() {
    let inside = TestDns::start().await;
    inside.upstream.set("_8443._https.ok.example", RecordType::HTTPS, Act::Silent);
    let answer = inside.ask(ONE, "_8443._https.ok.example", RecordType::HTTPS).await;
    assert_eq!((answer.response_code, answer.answers.len()), (ResponseCode::NoError, 0));
    assert_eq!(inside.upstream.questions()[0].1, RecordType::A, "the type itself is never asked for");
}
