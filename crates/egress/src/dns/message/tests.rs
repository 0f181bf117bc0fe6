//! Valid and invalid messages of clients.

use std::net::Ipv4Addr;

use hickory_proto::rr::RData;
use proptest::prelude::*;

use super::*;

fn query(name: &str) -> Message {
    let mut message = Message::new(7, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), RecordType::A));
    message
}

fn with_edns(name: &str, room: u16, version: u8) -> Message {
    let mut message = query(name);
    let mut edns = Edns::new();
    edns.set_max_payload(room).set_version(version).set_dnssec_ok(true);
    message.set_edns(edns);
    message
}

fn question(message: &Message) -> (Question, Envelope) {
    match read(&message.to_vec().unwrap()) {
        ParsedMessage::Question(question, envelope) => (question, envelope),
        other => panic!("{other:?}"),
    }
}

fn wrong(bytes: &[u8]) -> Message {
    match read(bytes) {
        ParsedMessage::Invalid(message) => Message::from_vec(&message.to_vec().unwrap()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn encode_reply(message: &Message, reply: DnsReply, room: usize) -> Message {
    let (_, envelope) = question(message);
    let bytes = envelope.encode_reply(reply, room).unwrap();
    assert!(bytes.len() <= room, "{} of {room}", bytes.len());
    Message::from_vec(&bytes).unwrap()
}

fn addresses(name: &str, count: u8) -> DnsReply {
    let owner = Name::from_ascii(name).unwrap();
    let record =
        |last| Record::from_rdata(owner.clone(), 60, RData::A(Ipv4Addr::new(192, 0, 2, last).into()));
    DnsReply { answers: (1..=count).map(record).collect(), ..DnsReply::of(ResponseCode::NoError) }
}

#[test]
fn the_spelling_of_the_question_is_preserved() {
    let reply = encode_reply(&query("wWw.ExAmPlE.com."), addresses("www.example.com.", 1), 512);
    assert_eq!(reply.id, 7);
    assert_eq!(reply.message_type, MessageType::Response);
    assert!(reply.recursion_available && reply.recursion_desired && !reply.authoritative);
    assert_eq!(reply.queries[0].name.to_ascii(), "wWw.ExAmPlE.com.");
    assert_eq!(reply.answers[0].name.to_ascii(), "wWw.ExAmPlE.com.");
}

#[test]
fn replies_are_truncated_to_fit() {
    let whole = encode_reply(&query("a.example."), addresses("a.example.", 25), 512);
    assert!(!whole.truncation && whole.answers.len() == 25);
    let part = encode_reply(&query("a.example."), addresses("a.example.", 100), 512);
    assert!(part.truncation && (1..32).contains(&part.answers.len()), "{}", part.answers.len());
    let (_, envelope) = question(&query("a.example."));
    assert_eq!(envelope.datagram_room(), 512);
    for (announced, room) in [(0, 512), (400, 512), (600, 600), (1232, 1232), (65535, 1232)] {
        let (_, envelope) = question(&with_edns("a.example.", announced, 0));
        assert_eq!(envelope.datagram_room(), room, "{announced}");
        let bytes = envelope.encode_reply(addresses("a.example.", 250), room).unwrap();
        let part = Message::from_vec(&bytes).unwrap();
        assert!(part.truncation && part.edns.is_some() && bytes.len() <= room);
    }
}

#[test]
fn extended_errors_need_edns() {
    let blocked = || DnsReply { why: Some((15, "no".to_owned())), ..DnsReply::of(ResponseCode::NXDomain) };
    assert!(encode_reply(&query("a.example."), blocked(), 512).edns.is_none());
    let reply = encode_reply(&with_edns("a.example.", 1232, 0), blocked(), 1232);
    let edns = reply.edns.unwrap();
    assert!(edns.flags().dnssec_ok);
    let (_, option) = &edns.options().as_ref()[0];
    assert_eq!(*option, EdnsOption::Unknown(15, b"\x00\x0fno".to_vec()));
}

#[test]
fn invalid_messages_get_an_error() {
    let plain = query("a.example.").to_vec().unwrap();
    let flagged = |byte: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[byte] = value;
        bytes
    };
    for (what, bytes, code) in [
        ("status", flagged(2, 0b0001_0000), ResponseCode::NotImp),
        ("notify", flagged(2, 0b0010_0000), ResponseCode::NotImp),
        ("update", flagged(2, 0b0010_1000), ResponseCode::NotImp),
        (
            "no question",
            plain[..12].iter().enumerate().map(|(at, byte)| if at == 5 { 0 } else { *byte }).collect(),
            ResponseCode::FormErr,
        ),
        ("two questions", flagged(5, 2), ResponseCode::FormErr),
        ("an answer", flagged(7, 1), ResponseCode::FormErr),
        ("an authority", flagged(9, 1), ResponseCode::FormErr),
        ("cut off", plain[..plain.len() - 3].to_vec(), ResponseCode::FormErr),
        ("edns 1", with_edns("a.example.", 1232, 1).to_vec().unwrap(), ResponseCode::BADVERS),
    ] {
        let reply = wrong(&bytes);
        assert_eq!((reply.id, reply.message_type), (7, MessageType::Response), "{what}");
        let high = reply.edns.as_ref().map_or(0, Edns::rcode_high);
        let response_code = u16::from(high) << 4 | u16::from(reply.response_code.low());
        assert_eq!(response_code, u16::from(code), "{what}");
    }
}

#[test]
fn answers_and_fragments_are_ignored() {
    let mut answer = query("a.example.").to_vec().unwrap();
    answer[2] |= 0x80;
    assert!(matches!(read(&answer), ParsedMessage::Nothing));
    for length in 0..12 {
        assert!(matches!(read(&answer[..length]), ParsedMessage::Nothing), "{length}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = read(&bytes);
    }

    #[test]
    fn any_bytes_after_a_valid_header_are_parsed_without_panic(
        rest in proptest::collection::vec(any::<u8>(), 0..300),
        additionals in 0_u8..4,
    ) {
        let mut bytes = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, additionals];
        bytes.extend(rest);
        if let ParsedMessage::Question(question, envelope) = read(&bytes) {
            let room = envelope.datagram_room();
            let mut reply = addresses("a.example.", 100);
            reply.why = Some((15, "no".to_owned()));
            let answer = Message::from_vec(&envelope.encode_reply(reply, room).unwrap()).unwrap();
            prop_assert!(answer.queries[0].name.eq_case(&question.name));
        }
    }
}
