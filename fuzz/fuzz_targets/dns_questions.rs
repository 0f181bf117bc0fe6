//! Parses any bytes as a message to the sandboxes' DNS server, as a datagram or over a connection. A question is answered with more
//! records than fit: the reply must be parseable, fit, and belong to the question. Errors must be parseable too.

#![no_main]

use std::net::Ipv4Addr;

use egress::dns::{ParsedMessage, DnsReply, read};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::{RData, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match read(bytes) {
        ParsedMessage::Nothing => {}
        ParsedMessage::Invalid(message) => {
            let bytes = message.to_vec().expect("the reply can be serialized"); // a failure is what the fuzzer looks for
            answers(&bytes);
        }
        ParsedMessage::Question(question, envelope) => {
            let address = |last| RData::A(Ipv4Addr::new(192, 0, 2, last).into());
            let reply = DnsReply {
                answers: (0..200)
                    .map(|last| Record::from_rdata(question.name.clone(), 60, address(last)))
                    .collect(),
                why: Some((15, "a text".to_owned())),
                ..DnsReply::of(ResponseCode::NoError)
            };
            for room in [envelope.datagram_room(), usize::from(u16::MAX)] {
                let bytes = envelope.encode_reply(reply.clone(), room).expect("a part of it fits"); // a failure is what the fuzzer looks for
                assert!(bytes.len() <= room, "{} of {room}", bytes.len());
                let answer = answers(&bytes);
                assert!(answer.queries.len() == 1 && answer.queries[0].name.eq_case(&question.name));
                assert_eq!(answer.truncation, answer.answers.len() < 200);
            }
        }
    }
});

fn answers(bytes: &[u8]) -> Message {
    let message = Message::from_vec(bytes).expect("the reply can be parsed"); // a failure is what the fuzzer looks for
    assert_eq!(message.message_type, MessageType::Response);
    message
}
