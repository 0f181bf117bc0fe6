//! An upstream server with a table of answers, over UDP and TCP.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hickory_proto::op::{Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{CNAME, MX, SOA, TXT};
use hickory_proto::rr::{Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};

#[derive(Clone)]
pub enum Act {
    Answer(Vec<Record>),
    Code(ResponseCode),
    Silent,
    /// Answers with a wrong id first, and then possibly with the right one.
    WrongId(Vec<Record>, Option<Duration>),
    /// A truncated datagram.
    OnlyTcp(Vec<Record>),
    Slow(Duration, Vec<Record>),
}

/// A name, a type, and whether over `udp` or `tcp`.
pub type Question = (String, RecordType, &'static str);

#[derive(Clone)]
pub struct Upstream {
    pub address: SocketAddr,
    acts: Arc<Mutex<HashMap<(String, RecordType), Act>>>,
    questions: Arc<Mutex<Vec<Question>>>,
}

pub fn name(text: &str) -> Name {
    let mut name = Name::from_ascii(text).unwrap();
    name.set_fqdn(true);
    name
}

pub fn a(owner: &str, address: [u8; 4]) -> Record {
    Record::from_rdata(name(owner), 300, RData::A(Ipv4Addr::from(address).into()))
}

pub fn cname(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::CNAME(CNAME(name(target))))
}

pub fn txt(owner: &str, text: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::TXT(TXT::new(vec![text.to_owned()])))
}

pub fn mx(owner: &str, target: &str) -> Record {
    Record::from_rdata(name(owner), 300, RData::MX(MX::new(10, name(target))))
}

/// UDP and TCP sockets with the same port, which another program may use in one protocol.
pub async fn both() -> (UdpSocket, TcpListener) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        if let Ok(udp) = UdpSocket::bind(tcp.local_addr().unwrap()).await {
            return (udp, tcp);
        }
    }
}

impl Upstream {
    pub async fn start() -> Self {
        let (udp, tcp) = both().await;
        let address = udp.local_addr().unwrap();
        let upstream = Self { address, acts: Arc::default(), questions: Arc::default() };
        tokio::spawn(upstream.clone().datagrams(Arc::new(udp)));
        tokio::spawn(upstream.clone().connections(tcp));
        upstream
    }

    pub fn set(&self, owner: &str, kind: RecordType, act: Act) {
        self.acts.lock().unwrap().insert((owner.to_owned(), kind), act);
    }

    pub fn answer(&self, owner: &str, records: &[Record]) {
        let kind = records.last().map_or(RecordType::A, Record::record_type);
        self.set(owner, kind, Act::Answer(records.to_vec()));
    }

    /// The received questions, in order.
    pub fn questions(&self) -> Vec<Question> {
        self.questions.lock().unwrap().clone()
    }

    fn act(&self, query: &Message, over: &'static str) -> Act {
        let question = &query.queries[0];
        let text = question.name.to_ascii();
        assert_eq!(text, text.to_ascii_lowercase(), "how a sandbox writes a name goes no further");
        let owner = text.trim_end_matches('.').to_owned();
        self.questions.lock().unwrap().push((owner.clone(), question.query_type, over));
        let acts = self.acts.lock().unwrap();
        if let Some(act) = acts.get(&(owner.clone(), question.query_type)) {
            return act.clone();
        }
        let exists = acts.keys().any(|(known, _)| *known == owner);
        Act::Code(if exists { ResponseCode::NoError } else { ResponseCode::NXDomain })
    }

    async fn datagrams(self, socket: Arc<UdpSocket>) {
        let mut buffer = [0; 4096];
        while let Ok((length, source)) = socket.recv_from(&mut buffer).await {
            let (upstream, socket) = (self.clone(), Arc::clone(&socket));
            let query = Message::from_vec(&buffer[..length]).unwrap();
            tokio::spawn(async move {
                for bytes in upstream.replies(&query, "udp").await {
                    socket.send_to(&bytes, source).await.unwrap();
                }
            });
        }
    }

    async fn connections(self, listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let upstream = self.clone();
            tokio::spawn(async move {
                while let Ok(length) = stream.read_u16().await {
                    let mut bytes = vec![0; length.into()];
                    stream.read_exact(&mut bytes).await.unwrap();
                    let query = Message::from_vec(&bytes).unwrap();
                    for bytes in upstream.replies(&query, "tcp").await {
                        stream.write_u16(bytes.len().try_into().unwrap()).await.unwrap();
                        stream.write_all(&bytes).await.unwrap();
                    }
                }
            });
        }
    }

    async fn replies(&self, query: &Message, over: &'static str) -> Vec<Vec<u8>> {
        let reply = |id: u16, records: &[Record]| {
            let mut reply = Message::new(id, MessageType::Response, OpCode::Query);
            reply.add_query(query.queries[0].clone());
            reply.add_answers(records.iter().cloned());
            reply
        };
        match self.act(query, over) {
            Act::Answer(records) => vec![reply(query.id, &records).to_vec().unwrap()],
            Act::Code(code) => {
                let mut reply = reply(query.id, &[]);
                reply.metadata.response_code = code;
                let soa = SOA::new(name("ns.example"), name("hostmaster.example"), 1, 1, 1, 1, 30);
                reply.add_authority(Record::from_rdata(name("example"), 900, RData::SOA(soa)));
                vec![reply.to_vec().unwrap()]
            }
            Act::Silent => Vec::new(),
            Act::WrongId(records, then) => {
                let lie = reply(query.id ^ 1, &[a("liar.example", [203, 0, 113, 66])]).to_vec().unwrap();
                let Some(after) = then else { return vec![lie] };
                tokio::time::sleep(after).await;
                vec![lie, reply(query.id, &records).to_vec().unwrap()]
            }
            Act::OnlyTcp(records) if over == "tcp" => vec![reply(query.id, &records).to_vec().unwrap()],
            Act::OnlyTcp(_) => {
                let mut reply = reply(query.id, &[]);
                reply.metadata.truncation = true;
                vec![reply.to_vec().unwrap()]
            }
            Act::Slow(after, records) => {
                tokio::time::sleep(after).await;
                vec![reply(query.id, &records).to_vec().unwrap()]
            }
        }
    }
}
