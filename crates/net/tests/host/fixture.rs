//! A host, an outside and sandboxes, each in its own network namespace. The machine's network is not changed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use api::{EgressDefault, EgressPolicy, SandboxId};
use net::{Guest, HostNetwork, HostSettings, Network, Pool, Refusal, Upstreams};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::mpsc;

/// A public address behind the uplink.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
pub const OTHER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 11);
/// A private address behind the uplink.
pub const PRIVATE: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);
/// The host's own public address.
pub const HOST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
pub const BROADCAST: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 255);
/// The port of the echo servers on every address of the outside and of the host.
pub const PORT: u16 = 7007;
/// Time limit for data that must arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_millis(1500);
/// Time after which data counts as dropped.
const NO_ARRIVAL_TIMEOUT: Duration = Duration::from_millis(250);

static NUMBER: AtomicU32 = AtomicU32::new(0);

/// A named network namespace, deleted when this is dropped.
pub struct Namespace {
    pub name: String,
}

impl Drop for Namespace {
    fn drop(&mut self) {
        run("ip", &["netns", "del", &self.name]);
    }
}

pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

impl Namespace {
    pub fn new(kind: &str) -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("net-test-{}-{number}-{kind}", std::process::id());
        run("ip", &["netns", "add", &name]);
        Self { name }
    }

    pub fn file(&self) -> File {
        File::open(format!("/run/netns/{}", self.name)).unwrap()
    }

    pub fn enter(&self) {
        move_into_link_name_space(self.file().as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    }

    /// Runs a closure on a thread inside.
    pub fn run_inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter();
                what()
            });
            thread.join().unwrap()
        })
    }

    pub fn ip(&self, arguments: &str) {
        let mut all = vec!["-n", &self.name];
        all.extend(arguments.split_whitespace());
        run("ip", &all);
    }

    /// Starts UDP and TCP echo servers on an address and port, for the duration of the test.
    pub fn echo(&self, address: Ipv4Addr, port: u16) {
        self.run_inside(move || {
            let udp = UdpSocket::bind((address, port)).unwrap();
            let tcp = TcpListener::bind((address, port)).unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 65_536];
                while let Ok((length, from)) = udp.recv_from(&mut buffer) {
                    let _ = udp.send_to(&buffer[..length], from);
                }
            });
            thread::spawn(move || {
                for stream in tcp.incoming().flatten() {
                    thread::spawn(move || echo_stream(stream));
                }
            });
        });
    }
}

fn echo_stream(mut stream: TcpStream) {
    let mut buffer = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..length]).is_err() {
            return;
        }
    }
}

/// The host and the outside. The calling thread enters the host's namespace.
pub struct Fixture {
    pub host: Namespace,
    pub outside: Namespace,
    pub data: tempfile::TempDir,
}

impl Fixture {
    pub fn new() -> Self {
        let (host, outside) = (Namespace::new("host"), Namespace::new("out"));
        let data = tempfile::tempdir().unwrap();
        host.ip("link set lo up");
        outside.ip("link set lo up");
        host.ip(&format!("link add up0 type veth peer name up0 netns {}", outside.name));
        host.ip("addr add 203.0.113.1/24 brd + dev up0");
        host.ip("link set up0 up");
        outside.ip("addr add 203.0.113.2/24 brd + dev up0");
        outside.ip("link set up0 up");
        host.ip("route add default via 203.0.113.2");
        for address in [SERVER, OTHER, PRIVATE, METADATA] {
            outside.ip(&format!("addr add {address}/32 dev lo"));
            outside.echo(address, PORT);
        }
        host.enter();
        host.echo(HOST, PORT);
        Self { host, outside, data }
    }

    pub fn settings(&self) -> HostSettings {
        HostSettings {
            data_dir: self.data.path().to_owned(),
            slots: 1000,
            pool: Pool::Auto,
            resolver: Upstreams::Listed(vec![SocketAddr::from((SERVER, 5353))]),
            allow_private: Vec::new(),
            closed: Vec::new(),
            rate_mbit: 0,
            connections: 8192,
        }
    }

    pub fn open(&self) -> (HostNetwork, mpsc::Receiver<Refusal>) {
        HostNetwork::open(self.settings()).unwrap()
    }
}

pub fn allow_all() -> EgressPolicy {
    EgressPolicy::default()
}

pub fn only(names: &[&str]) -> EgressPolicy {
    EgressPolicy {
        default: EgressDefault::Deny,
        allow: names.iter().map(|name| (*name).to_owned()).collect(),
        ..EgressPolicy::default()
    }
}

pub fn guest(slot: u32) -> Guest {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&slot.to_be_bytes());
    Guest { id: SandboxId::from_random(bytes), slot }
}

/// A connected sandbox.
pub struct TestSandbox {
    pub guest: Guest,
    pub namespace: Namespace,
    pub address: Ipv4Addr,
}

/// Connects on a separate thread, because `plug` blocks.
pub fn plug_into(network: &HostNetwork, guest: &Guest, namespace: &Namespace) {
    thread::scope(|scope| {
        scope.spawn(|| network.plug(guest, namespace.file().as_fd()).unwrap()).join().unwrap();
    });
}

pub fn plug(network: &HostNetwork, slot: u32) -> TestSandbox {
    let namespace = Namespace::new("guest");
    let guest = guest(slot);
    plug_into(network, &guest, &namespace);
    TestSandbox { address: network.address(&guest), guest, namespace }
}

impl TestSandbox {
    /// Whether a datagram to an address is echoed.
    pub fn echoes_datagram(&self, to: Ipv4Addr) -> bool {
        self.echoes_datagram_from(Ipv4Addr::UNSPECIFIED, to, PORT, 10)
    }

    pub fn echoes_datagram_from(&self, from: Ipv4Addr, to: Ipv4Addr, port: u16, bytes: usize) -> bool {
        self.namespace.run_inside(move || {
            let socket = UdpSocket::bind((from, 0)).unwrap();
            socket.set_broadcast(true).unwrap();
            exchange(&socket, SocketAddrV4::new(to, port), bytes).is_ok()
        })
    }

    /// Whether a connection to an address carries data.
    pub fn connects(&self, to: Ipv4Addr) -> bool {
        self.connects_to(to, PORT).is_ok()
    }

    /// Whether an echo request is answered.
    pub fn pings(&self, to: Ipv4Addr) -> bool {
        self.namespace.run_inside(move || ping(to).is_ok())
    }

    pub fn connects_to(&self, to: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
        self.namespace.run_inside(move || connect(to, port))
    }
}

pub fn exchange(socket: &UdpSocket, to: SocketAddrV4, bytes: usize) -> io::Result<()> {
    let sent = vec![7; bytes];
    let mut received = vec![0; 65_536];
    socket.set_read_timeout(Some(NO_ARRIVAL_TIMEOUT))?;
    socket.send_to(&sent, to)?;
    let (length, _) = socket.recv_from(&mut received)?;
    assert_eq!(received[..length], sent[..]);
    Ok(())
}

pub fn connect(to: Ipv4Addr, port: u16) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::from((to, port)), NO_ARRIVAL_TIMEOUT)?;
    stream.set_read_timeout(Some(ARRIVAL_TIMEOUT))?;
    exchange_data(&mut stream)?;
    Ok(stream)
}

/// Sends data and expects its echo.
pub fn exchange_data(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"hello")?;
    let mut received = [0; 5];
    stream.read_exact(&mut received)
}

fn ping(to: Ipv4Addr) -> io::Result<()> {
    use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
    let socket = net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(NO_ARRIVAL_TIMEOUT))?;
    sockopt::set_socket_broadcast(&socket, true)?;
    // Type, code, and a checksum over the four words that follow.
    let request = [8, 0, 0xf7, 0xfd, 0, 1, 0, 1];
    net::sendto(&socket, &request, SendFlags::empty(), &SocketAddrV4::new(to, 0))?;
    let mut packet = [0; 128];
    loop {
        let (length, _) = net::recv(&socket, &mut packet[..], RecvFlags::empty())?;
        if length >= 28 && packet[20] == 0 && packet[12..16] == to.octets() {
            return Ok(());
        }
    }
}
