//! A DNS server for tests, with sandboxes that each have their own loopback address.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{EgressDefault, EgressPolicy, SandboxId};
use async_trait::async_trait;
use egress::{Guest, KernelNetwork, Parts, PolicyRegistry, Refusal, Refusals, Resolver, Upstreams};
use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{RData, RecordType};
use rules::Ranges;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::upstream::{Upstream, both, name};

pub const ONE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub const TWO: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);
pub const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// A kernel that records its calls.
#[derive(Default)]
pub struct FakeKernel {
    pub opened: Mutex<Vec<(Ipv4Addr, Vec<Ipv4Addr>, Duration)>>,
    pub closed: Mutex<Vec<(Ipv4Addr, Vec<Ipv4Addr>)>>,
    pub of_host: Mutex<Vec<Ipv4Addr>>,
    pub slow: Mutex<Duration>,
    pub broken: Mutex<bool>,
}

#[async_trait]
impl KernelNetwork for FakeKernel {
    async fn open(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr], lasting: Duration) -> io::Result<()> {
        let slow = *self.slow.lock().unwrap();
        if !slow.is_zero() {
            tokio::time::sleep(slow).await;
        }
        if *self.broken.lock().unwrap() {
            return Err(io::Error::other("broken"));
        }
        self.opened.lock().unwrap().push((guest, addresses.to_vec(), lasting));
        Ok(())
    }

    async fn close(&self, guest: Ipv4Addr, addresses: &[Ipv4Addr]) -> io::Result<()> {
        self.closed.lock().unwrap().push((guest, addresses.to_vec()));
        Ok(())
    }

    async fn is_host(&self, address: Ipv4Addr) -> io::Result<bool> {
        Ok(self.of_host.lock().unwrap().contains(&address))
    }
}

pub struct TestDns {
    pub upstream: Upstream,
    pub kernel: Arc<FakeKernel>,
    pub parts: Arc<Parts>,
    pub refused: mpsc::Receiver<Refusal>,
    pub server: SocketAddr,
    pub stop: CancellationToken,
    pub serving: JoinHandle<()>,
}

pub fn id(address: Ipv4Addr) -> SandboxId {
    SandboxId::from_random([address.octets()[3]; 20])
}

impl TestDns {
    /// Sandbox `ONE` has a closed policy with `*.ok.example` and `ok.example`.
    pub async fn start() -> Self {
        let upstream = Upstream::start().await;
        Self::before(upstream.clone(), vec![upstream.address]).await
    }

    pub async fn before(upstream: Upstream, servers: Vec<SocketAddr>) -> Self {
        let kernel = Arc::new(FakeKernel::default());
        let ranges =
            Ranges::new(Some("10.64.0.0/18".parse().unwrap()), vec!["192.168.7.0/24".parse().unwrap()]);
        let resolver = Resolver::new(Upstreams::Listed(servers), ranges.clone(), kernel.clone()).unwrap();
        let (refusals, refused) = Refusals::new();
        let registry = Arc::new(PolicyRegistry::default());
        let parts = Arc::new(Parts {
            registry,
            kernel: kernel.clone(),
            resolver: Arc::new(resolver),
            refusals,
            ranges,
        });
        let (udp, tcp) = both().await;
        let server = udp.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(egress::dns::serve(Arc::clone(&parts), udp, tcp, stop.clone()));
        let inside = Self { upstream, kernel, parts, refused, server, stop, serving };
        inside.strict(ONE, &["*.ok.example", "ok.example"]);
        inside
    }

    pub fn strict(&self, address: Ipv4Addr, allow: &[&str]) {
        let allow = allow.iter().map(|name| (*name).to_owned()).collect();
        self.parts.registry.admit(
            &id(address),
            address,
            &EgressPolicy { allow, default: EgressDefault::Deny, ..EgressPolicy::default() },
        );
    }

    pub fn open(&self, address: Ipv4Addr) {
        let policy = EgressPolicy::default();
        self.parts.registry.admit(&id(address), address, &policy);
    }

    pub fn guest(&self, address: Ipv4Addr) -> Arc<Guest> {
        self.parts.registry.find(address).unwrap()
    }

    pub fn opened(&self) -> Vec<(Ipv4Addr, Vec<Ipv4Addr>, Duration)> {
        self.kernel.opened.lock().unwrap().clone()
    }

    /// Asks over UDP and waits for the answer.
    pub async fn ask(&self, from: Ipv4Addr, text: &str, kind: RecordType) -> Message {
        let query = question(text, kind);
        let answer = self.send(from, &query.to_vec().unwrap()).await.expect("an answer");
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!((answer.id, answer.message_type), (query.id, MessageType::Response));
        assert!(answer.queries[0].name.eq_case(&query.queries[0].name));
        answer
    }

    /// Sends a datagram and returns the answer, if there is one.
    pub async fn send(&self, from: Ipv4Addr, bytes: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind((from, 0)).await.unwrap();
        socket.connect(self.server).await.unwrap();
        socket.send(bytes).await.unwrap();
        let mut buffer = vec![0; 4096];
        let received = tokio::time::timeout(Duration::from_secs(4), socket.recv(&mut buffer)).await.ok()?;
        buffer.truncate(received.unwrap());
        Some(buffer)
    }

    /// The reason and the name of the next refusal.
    pub fn next_refusal(&mut self) -> Option<(&'static str, String)> {
        let refusal = self.refused.try_recv().ok()?;
        assert_eq!((refusal.target.port, refusal.target.address), (53, None));
        Some((refusal.reason.code(), refusal.target.name.unwrap_or_default()))
    }
}

pub fn question(text: &str, kind: RecordType) -> Message {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name(text), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(1232);
    message.set_edns(edns);
    message
}

pub fn addresses(message: &Message) -> Vec<Ipv4Addr> {
    let address = |data: &RData| match data {
        RData::A(address) => Some(address.0),
        _ => None,
    };
    message.answers.iter().filter_map(|record| address(&record.data)).collect()
}

/// The number and the text of the extended error.
pub fn extended_error(message: &Message) -> Option<(u16, String)> {
    use hickory_proto::rr::rdata::opt::EdnsOption;
    message.edns.as_ref()?.options().as_ref().iter().find_map(|(_, option)| match option {
        EdnsOption::Unknown(15, bytes) => {
            let (number, text) = bytes.split_at(2);
            Some((u16::from_be_bytes(number.try_into().unwrap()), String::from_utf8(text.to_vec()).unwrap()))
        }
        _ => None,
    })
}
