//! A sandbox, its proxy, and servers.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use api::{EgressDefault, EgressPolicy, SandboxId};
use async_trait::async_trait;
use egress::proxy::Original;
use egress::{
    Addresses, Guest, KernelNetwork, Parts, PolicyRegistry, Reason, Refusal, Refusals, Resolve,
    ResolveFailure,
};
use rules::Ranges;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Timeout of a step, for slow machines.
pub const LONG: Duration = Duration::from_secs(20);

/// The last byte of the next loopback address.
static NEXT: AtomicU32 = AtomicU32::new(1);

/// Addresses below 127.66 are closed to sandboxes, those below 127.67 open.
fn fresh(second: u8) -> Ipv4Addr {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    Ipv4Addr::new(127, second, (number >> 8) as u8, number as u8)
}

pub fn server_address() -> Ipv4Addr {
    fresh(67)
}

struct NoKernel;

#[async_trait]
impl KernelNetwork for NoKernel {
    async fn open(&self, _: Ipv4Addr, _: &[Ipv4Addr], _: Duration) -> io::Result<()> {
        Ok(())
    }

    async fn close(&self, _: Ipv4Addr, _: &[Ipv4Addr]) -> io::Result<()> {
        Ok(())
    }

    async fn is_host(&self, _: Ipv4Addr) -> io::Result<bool> {
        Ok(false)
    }
}

#[derive(Default)]
struct Zone {
    names: Mutex<HashMap<String, Result<Vec<Ipv4Addr>, ResolveFailure>>>,
}

#[async_trait]
impl Resolve for Zone {
    async fn addresses(&self, name: &str) -> Result<Addresses, ResolveFailure> {
        let found = self.names.lock().unwrap().get(name).cloned().unwrap_or(Err(ResolveFailure::NoSuchName));
        found.map(|list| Addresses { list, ttl: Duration::from_secs(60) })
    }
}

pub struct Fixture {
    pub parts: Arc<Parts>,
    pub guest: Arc<Guest>,
    refused: mpsc::Receiver<Refusal>,
    zone: Arc<Zone>,
    proxy: SocketAddr,
    wanted: Arc<Mutex<HashMap<SocketAddr, SocketAddrV4>>>,
    pub stop: CancellationToken,
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn policy(allow: &[&str]) -> EgressPolicy {
    EgressPolicy {
        allow: allow.iter().map(|name| (*name).to_owned()).collect(),
        default: EgressDefault::Deny,
        ..EgressPolicy::default()
    }
}

impl Fixture {
    /// A sandbox whose policy lists these names.
    pub async fn new(allow: &[&str]) -> Self {
        let (refusals, refused) = Refusals::new();
        let zone = Arc::new(Zone::default());
        let parts = Arc::new(Parts {
            registry: Arc::new(PolicyRegistry::default()),
            kernel: Arc::new(NoKernel),
            resolver: zone.clone(),
            refusals,
            ranges: Ranges::new(None, vec!["127.67.0.0/16".parse().unwrap()]),
        });
        let id: SandboxId = "sb_0123456789".parse().unwrap();
        let address = fresh(66);
        parts.registry.admit(&id, address, &policy(allow));
        let guest = parts.registry.find(address).unwrap();
        let listener = TcpListener::bind((fresh(66), 0)).await.unwrap();
        let proxy = listener.local_addr().unwrap();
        let wanted: Arc<Mutex<HashMap<SocketAddr, SocketAddrV4>>> = Arc::default();
        let known = wanted.clone();
        let original: Original = Arc::new(move |stream| {
            let peer = stream.peer_addr()?;
            known.lock().unwrap().get(&peer).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
        });
        let stop = CancellationToken::new();
        tokio::spawn(egress::proxy::serve_from(parts.clone(), listener, stop.clone(), original));
        Self { parts, guest, refused, zone, proxy, wanted, stop }
    }

    /// Sets what a name resolves to.
    pub fn name(&self, name: &str, addresses: &[Ipv4Addr]) {
        self.zone.names.lock().unwrap().insert(name.to_owned(), Ok(addresses.to_vec()));
    }

    pub fn broken_name(&self, name: &str, failure: ResolveFailure) {
        self.zone.names.lock().unwrap().insert(name.to_owned(), Err(failure));
    }

    /// Records a DNS answer to the sandbox.
    pub fn learn(&self, name: &str, address: Ipv4Addr) {
        self.guest.learn(name, &[address], Duration::from_secs(60), std::time::Instant::now());
    }

    /// Connects from the sandbox.
    pub async fn dial(&self, to: SocketAddrV4) -> TcpStream {
        self.dial_from(self.guest.address, to).await
    }

    pub async fn dial_from(&self, from: Ipv4Addr, to: SocketAddrV4) -> TcpStream {
        self.try_dial(from, to).await.unwrap()
    }

    pub async fn try_dial(&self, from: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((from, 0))).unwrap();
        self.wanted.lock().unwrap().insert(socket.local_addr().unwrap(), to);
        let stream = socket.connect(self.proxy).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// The reason and the name of the next refusal.
    pub async fn refusal(&mut self) -> (Reason, Option<String>) {
        let refusal = timeout(LONG, self.refused.recv()).await.expect("nothing was refused").unwrap();
        assert_eq!(refusal.sandbox, self.guest.id);
        (refusal.reason, refusal.target.name)
    }

    pub fn no_refusal(&mut self) {
        let refusal = self.refused.try_recv();
        assert!(refusal.is_err(), "{refusal:?}");
    }
}

/// Waits for the reset of a connection, and returns the data before it. Fails if it ends in another way.
pub async fn reset(stream: &mut TcpStream) -> Vec<u8> {
    let mut came = Vec::new();
    let end = timeout(LONG, stream.read_to_end(&mut came)).await.expect("the connection stays open");
    let error = end.expect_err("the connection was closed as if all were well");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    came
}

/// Reads a number of bytes.
pub async fn take(stream: &mut TcpStream, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    timeout(LONG, stream.read_exact(&mut bytes)).await.expect("nothing comes").expect("it broke off");
    bytes
}

pub async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    timeout(LONG, stream.read_to_end(&mut bytes)).await.expect("it does not end").expect("it broke off");
    bytes
}

/// A server at its own address.
pub async fn server<F>(serve: impl Fn(TcpStream) -> F + Send + 'static) -> SocketAddrV4
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind((server_address(), 0)).await.unwrap();
    let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).unwrap();
            tokio::spawn(serve(stream));
        }
    });
    address
}

/// Echoes.
pub async fn echo_server() -> SocketAddrV4 {
    server(|mut stream| async move {
        // Small, since thousands of these are held at a time.
        let mut buffer = vec![0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            if stream.write_all(&buffer[..read]).await.is_err() {
                return;
            }
        }
    })
    .await
}
