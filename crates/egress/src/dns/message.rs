//! Parses questions and serializes answers. The input is untrusted.

use hickory_proto::op::{Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// Maximum size of datagrams of this server, below the MTU of the links.
const DATAGRAM_BYTES: u16 = 1232;
/// Maximum size for a client without EDNS.
const PLAIN_DATAGRAM_BYTES: u16 = 512;
/// RFC 8914.
const EXTENDED_ERROR: u16 = 15;

/// A parsed message.
#[derive(Debug)]
pub enum ParsedMessage {
    /// Not a question. It is not answered, so that two servers cannot loop.
    Nothing,
    /// Invalid: answered with an error.
    Invalid(Box<Message>),
    Question(Question, Envelope),
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// In the client's spelling.
    pub name: Name,
    pub kind: RecordType,
    pub class: DNSClass,
}

/// The parts of the question that the answer repeats.
#[derive(Debug)]
pub struct Envelope {
    metadata: Metadata,
    query: Query,
    /// The client's maximum datagram size, if it uses EDNS, and whether it wants signatures.
    edns: Option<(u16, bool)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsReply {
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    pub soa: Option<Record>,
    /// An extended error (RFC 8914) and its text.
    pub why: Option<(u16, String)>,
}

impl DnsReply {
    /// A reply with this code and no records.
    pub fn of(code: ResponseCode) -> Self {
        Self { code, answers: Vec::new(), soa: None, why: None }
    }
}

/// Parses a message of a sandbox.
pub fn read(bytes: &[u8]) -> ParsedMessage {
    let Ok(header) = Header::read(&mut BinDecoder::new(bytes)) else { return ParsedMessage::Nothing };
    let (metadata, counts) = (header.metadata, header.counts);
    if metadata.message_type != MessageType::Query {
        return ParsedMessage::Nothing;
    }
    let wrong = |code| {
        let mut message = Message::new(metadata.id, MessageType::Response, metadata.op_code);
        message.metadata = answering(&metadata, code);
        ParsedMessage::Invalid(Box::new(message))
    };
    if metadata.op_code != OpCode::Query {
        return wrong(ResponseCode::NotImp);
    }
    if counts.queries != 1 || counts.answers != 0 || counts.authorities != 0 {
        return wrong(ResponseCode::FormErr);
    }
    let Ok(mut message) = Message::from_vec(bytes) else { return wrong(ResponseCode::FormErr) };
    let Some(query) = message.queries.pop() else { return wrong(ResponseCode::FormErr) };
    let edns = message.edns.as_ref();
    let envelope = Envelope {
        metadata,
        edns: edns.map(|edns| (edns.max_payload(), edns.flags().dnssec_ok)),
        query: query.clone(),
    };
    if edns.is_some_and(|edns| edns.version() != 0) {
        return ParsedMessage::Invalid(Box::new(envelope.message(DnsReply::of(ResponseCode::BADVERS))));
    }
    ParsedMessage::Question(
        Question { name: query.name, kind: query.query_type, class: query.query_class },
        envelope,
    )
}

fn answering(question: &Metadata, code: ResponseCode) -> Metadata {
    let mut metadata = Metadata::response_from_request(question);
    metadata.recursion_available = true;
    metadata.response_code = code;
    metadata
}

impl Envelope {
    /// Maximum size of a datagram to this client.
    pub fn datagram_room(&self) -> usize {
        self.edns
            .map_or(PLAIN_DATAGRAM_BYTES, |(room, _)| room.clamp(PLAIN_DATAGRAM_BYTES, DATAGRAM_BYTES))
            .into()
    }

    /// The answer in at most `room` bytes. If records do not fit, the answer is marked as truncated, so that the
    /// client retries over TCP; some clients cannot, so as many records as fit are included.
    pub fn encode_reply(&self, reply: DnsReply, room: usize) -> Option<Vec<u8>> {
        let mut message = self.message(reply);
        loop {
            match message.to_vec() {
                Ok(bytes) if bytes.len() <= room => return Some(bytes),
                Ok(_) | Err(_) if !message.answers.is_empty() => {
                    message.metadata.truncation = true;
                    message.authorities.clear();
                    let half = message.answers.len() / 2;
                    message.answers.truncate(half);
                }
                Ok(_) | Err(_) => return None,
            }
        }
    }

    fn message(&self, reply: DnsReply) -> Message {
        let mut message = Message::new(self.metadata.id, MessageType::Response, OpCode::Query);
        message.metadata = answering(&self.metadata, reply.code);
        // The client's spelling, for records of the name itself too.
        for mut record in reply.answers {
            if record.name == self.query.name {
                record.name = self.query.name.clone();
            }
            message.add_answer(record);
        }
        message.add_query(self.query.clone());
        message.add_authorities(reply.soa);
        if let Some((_, dnssec_ok)) = self.edns {
            let mut edns = Edns::new();
            edns.set_max_payload(DATAGRAM_BYTES).set_dnssec_ok(dnssec_ok);
            if let Some((number, text)) = reply.why {
                let option = [&number.to_be_bytes(), text.as_bytes()].concat();
                edns.options_mut().insert(EdnsOption::Unknown(EXTENDED_ERROR, option));
            }
            message.set_edns(edns);
        }
        message
    }
}

#[cfg(test)]
mod tests;
