//! A simulated internet: a machine for the daemon and, behind its only link, everything else. Used by tests and benches.
//!
//! Both are unnamed network namespaces that end with the test, so nothing here can reach this host's network or another
//! test. The internet has all addresses, including private ones and a cloud's metadata service: a packet that leaves the
//! machine by mistake arrives, is answered, and is recorded.

mod capture;
mod certificates;
mod dns;
mod echo;
pub mod image;
mod namespace;
mod server_process;
mod web;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result, ensure};
use base::IgnorePoison;
use tokio::runtime::Runtime;

pub use capture::{ICMP, Packet, PacketLog, TCP, UDP};
pub use certificates::OTHER_NAMES;
pub use dns::{AAAA, DnsAnswer, Names, TXT};
pub use echo::{GREETING, StreamMode};
pub use namespace::Namespace;
pub use web::BIG_MB;

/// The domain of its web servers, for which they have certificates.
pub const ZONE: &str = "web.example";
/// The DNS server.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 53);
/// The host's addresses: on its uplink, in a network behind it, and an additional one.
pub const MACHINE: [Ipv4Addr; 3] =
    [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 168, 77, 1), Ipv4Addr::new(192, 0, 2, 129)];
/// The same for IPv6.
pub const MACHINE_V6: [&str; 2] = ["2001:db8:1::1", "fd00:77::1"];
/// IPv6 addresses of the internet: an ordinary one, and a metadata service.
pub const OUTSIDE_V6: [&str; 3] = ["2001:db8:ffff::1", "fd00:ec2::254", "2606:4700:4700::1111"];

/// Enables forwarding, so that everything passes that is not filtered.
const MACHINE_SETUP: &str = "
ip address add 192.0.2.1/30 dev wan
ip address add 192.0.2.129/32 dev lo
ip -6 address add 2001:db8:1::1/64 dev wan nodad
ip address add 192.168.77.1/24 dev lan
ip -6 address add fd00:77::1/64 dev lan nodad
ip link set wan up
ip link set lan up
ip route add default via 192.0.2.2
ip -6 route add default via 2001:db8:1::2
sysctl -q -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.ip_local_port_range='1500 65000'
";
const OUTSIDE_SETUP: &str = "
ip link set lan up
ip address add 192.0.2.2/30 dev wan
ip -6 address add 2001:db8:1::2/64 dev wan nodad
ip link set wan up
for prefix in 203.0.113.0/24 198.51.100.0/24 10.0.0.0/8 100.64.0.0/10 169.254.0.0/16 172.16.0.0/12 192.168.0.0/16 \
  198.18.0.0/15 192.0.0.0/24 168.63.129.16 1.1.1.1 8.8.8.8 9.9.9.9; do ip route add local \"$prefix\" dev lo; done
# The host's own address is routed to the host. With at least one rule the kernel does not merge the tables main and local; in
# a merged table a throw route would end the lookup.
ip rule add pref 32000 lookup main
ip route add throw 192.168.77.1 table local
ip route add 192.168.77.1 dev lan
for prefix in 2001:db8:ffff::/48 fd00:ec2::254 2606:4700:4700::1111; do ip -6 route add local \"$prefix\" dev lo; done
# Closed ports: no limit on ICMP errors, so that every packet gets one. The packets are recorded in any case.
sysctl -q -w net.ipv4.icmp_ratelimit=0 net.ipv4.ip_local_port_range='1500 65000'
";
/// TEST-NET-3; each site has one address.
const SITES: u8 = 250;

/// The internet, and the host.
pub struct Internet {
    // Servers are dropped before their namespace.
    runtime: Option<Runtime>,
    web: Mutex<Option<web::Web>>,
    machine: Namespace,
    outside: Namespace,
    names: Arc<Names>,
    packets: Arc<PacketLog>,
    next_site: AtomicU8,
    certificates: certificates::Certificates,
    dir: tempfile::TempDir,
}

/// A site with a name and an address of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    pub name: String,
    pub address: Ipv4Addr,
}

impl Internet {
    /// Creates an internet with a DNS server only.
    pub fn new() -> Result<Self> {
        let (machine, outside) = (Namespace::new()?, Namespace::new()?);
        for link in ["wan", "lan"] {
            machine
                .shell(&format!("ip link add {link} type veth peer name {link} netns {}", outside.pid()))?;
        }
        outside.shell(OUTSIDE_SETUP)?;
        machine.shell(MACHINE_SETUP)?;
        let dir = tempfile::Builder::new().prefix("sandboxd-test-internet-").tempdir()?;
        let certificates = certificates::Certificates::make(dir.path())?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let internet = Self {
            runtime: Some(runtime),
            web: Mutex::default(),
            machine,
            outside,
            names: Arc::default(),
            packets: Arc::default(),
            next_site: AtomicU8::new(1),
            certificates,
            dir,
        };
        internet.dns_at(RESOLVER, 53)?;
        Ok(internet)
    }

    /// Starts recording all packets that arrive.
    pub fn watch(&self) -> Result<()> {
        self.packets.watch(&self.outside)
    }

    fn spawn<T, E>(&self, server: impl Future<Output = Result<T, E>> + Send + 'static) -> Result<()>
    where
        E: std::fmt::Display + Send + 'static,
        T: Send + 'static,
    {
        // Ends with the runtime.
        self.runtime.as_ref().context("the simulated internet has ended")?.spawn(async move {
            if let Err(error) = server.await {
                eprintln!("a server of the simulated internet failed: {error}");
            }
        });
        Ok(())
    }

    /// Moves the calling thread to the host's namespace, where the daemon and all tests run.
    pub fn enter(&self) -> Result<()> {
        self.machine.enter()
    }

    pub fn machine(&self) -> &Namespace {
        &self.machine
    }

    pub fn outside(&self) -> &Namespace {
        &self.outside
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn packets(&self) -> &PacketLog {
        &self.packets
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.certificates.authority.clone()
    }

    /// Starts web servers on every address: HTTP on 80 and 8080, HTTPS on 443, 853 and 8443.
    pub fn web(&self) -> Result<()> {
        let mut web = self.web.lock().ignore_poison();
        if web.is_none() {
            *web = Some(web::Web::start(&self.outside, self.dir.path(), &self.certificates)?);
        }
        Ok(())
    }

    /// The requests that the web servers received, one line each.
    pub fn web_log(&self) -> String {
        let web = self.web.lock().ignore_poison();
        web.as_ref().and_then(|web| std::fs::read_to_string(&web.log).ok()).unwrap_or_default()
    }

    /// An unused address.
    pub fn unused_address(&self) -> Result<Ipv4Addr> {
        let number = self.next_site.fetch_add(1, Ordering::Relaxed);
        ensure!((1..SITES).contains(&number), "no address of the simulated internet is left");
        Ok(Ipv4Addr::new(203, 0, 113, number))
    }

    /// Adds a site with this name below [`ZONE`] to the DNS server.
    pub fn site(&self, name: &str) -> Result<Site> {
        let site = Site { name: format!("{name}.{ZONE}"), address: self.unused_address()? };
        self.names.set(&site.name, DnsAnswer::A(vec![site.address], 300));
        Ok(site)
    }

    /// Starts the DNS server at another address and port too.
    pub fn dns_at(&self, address: Ipv4Addr, port: u16) -> Result<()> {
        let (udp, tcp) = self.sockets(SocketAddr::from((address, port)))?;
        let names = || Arc::clone(&self.names);
        let _guard = self.runtime.as_ref().context("the simulated internet has ended")?.enter();
        self.spawn(dns::serve_udp(names(), tokio::net::UdpSocket::from_std(udp)?))?;
        self.spawn(dns::serve_tcp(names(), tokio::net::TcpListener::from_std(tcp)?))
    }

    /// Starts a UDP echo server.
    pub fn echo_at(&self, address: impl Into<IpAddr>, port: u16) -> Result<()> {
        let address = SocketAddr::new(address.into(), port);
        let socket = self.outside.inside(|| Ok(std::net::UdpSocket::bind(address)?))?;
        socket.set_nonblocking(true)?;
        let _guard = self.runtime.as_ref().context("the simulated internet has ended")?.enter();
        self.spawn(echo::datagrams(tokio::net::UdpSocket::from_std(socket)?))
    }

    /// Starts a TCP server.
    pub fn stream_at(&self, address: impl Into<IpAddr>, port: u16, mode: StreamMode) -> Result<()> {
        let address = SocketAddr::new(address.into(), port);
        let listener = self.outside.inside(|| Ok(std::net::TcpListener::bind(address)?))?;
        listener.set_nonblocking(true)?;
        let _guard = self.runtime.as_ref().context("the simulated internet has ended")?.enter();
        self.spawn(echo::streams(tokio::net::TcpListener::from_std(listener)?, mode))
    }

    fn sockets(&self, address: SocketAddr) -> Result<(std::net::UdpSocket, std::net::TcpListener)> {
        let (udp, tcp) = self
            .outside
            .inside(|| Ok((std::net::UdpSocket::bind(address)?, std::net::TcpListener::bind(address)?)))?;
        udp.set_nonblocking(true)?;
        tcp.set_nonblocking(true)?;
        Ok((udp, tcp))
    }
}

impl Drop for Internet {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        *self.web.lock().ignore_poison() = None;
    }
}
