//! Bytes to questions, and answers to bytes. What a sandbox sends is read here first.

use hickory_proto::op::{Edns, Header, Message, MessageType, Metadata, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, Record, RecordType};
use hickory_proto::serialize::binary::{BinDecodable, BinDecoder};

/// The most that a datagram of ours holds: nothing on the way has to take it apart.
const DATAGRAM_BYTES: u16 = 1232;
/// The most for a client that does not say what it takes.
const PLAIN_DATAGRAM_BYTES: u16 = 512;
/// RFC 8914.
const EXTENDED_ERROR: u16 = 15;

/// What a message asks.
#[derive(Debug)]
pub enum Asked {
    /// Not a question: to be left alone, so that no two servers ever talk to each other.
    Nothing,
    /// What is wrong with it is said.
    Wrong(Box<Message>),
    Question(Question, Envelope),
}

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// With its letters as they were written.
    pub name: Name,
    pub kind: RecordType,
    pub class: DNSClass,
}

/// What is around the question and comes back with the answer.
#[derive(Debug)]
pub struct Envelope {
    metadata: Metadata,
    query: Query,
    /// What the client says that it takes, if it speaks EDNS, and whether it wants signatures.
    edns: Option<(u16, bool)>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    pub code: ResponseCode,
    pub answers: Vec<Record>,
    pub soa: Option<Record>,
    /// By its number in RFC 8914, with a text for people.
    pub why: Option<(u16, String)>,
}

impl Reply {
    pub fn of(code: ResponseCode) -> Self {
        Self { code, answers: Vec::new(), soa: None, why: None }
    }
}

/// Reads a message of a sandbox.
pub fn read(bytes: &[u8]) -> Asked {
    let Ok(header) = Header::read(&mut BinDecoder::new(bytes)) else { return Asked::Nothing };
    let (metadata, counts) = (header.metadata, header.counts);
    if metadata.message_type != MessageType::Query {
        return Asked::Nothing;
    }
    let wrong = |code| {
        let mut message = Message::new(metadata.id, MessageType::Response, metadata.op_code);
        message.metadata = answering(&metadata, code);
        Asked::Wrong(Box::new(message))
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
        return Asked::Wrong(Box::new(envelope.message(Reply::of(ResponseCode::BADVERS))));
    }
    Asked::Question(Question { name: query.name, kind: query.query_type, class: query.query_class }, envelope)
}

fn answering(question: &Metadata, code: ResponseCode) -> Metadata {
    let mut metadata = Metadata::response_from_request(question);
    metadata.recursion_available = true;
    metadata.response_code = code;
    metadata
}

impl Envelope {
    /// What a datagram to this client may hold.
    pub fn datagram_room(&self) -> usize {
        self.edns
            .map_or(PLAIN_DATAGRAM_BYTES, |(room, _)| room.clamp(PLAIN_DATAGRAM_BYTES, DATAGRAM_BYTES))
            .into()
    }

    /// The answer in so many bytes. What does not fit is left out and the client told to ask over TCP; some that cannot make
    /// do with the part, so as much as fits is there.
    pub fn answered(&self, reply: Reply, room: usize) -> Option<Vec<u8>> {
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

    fn message(&self, reply: Reply) -> Message {
        let mut message = Message::new(self.metadata.id, MessageType::Response, OpCode::Query);
        message.metadata = answering(&self.metadata, reply.code);
        // Also where they are the name's own, letters are as the client wrote them.
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
