//! Records every packet that arrives in the internet. A refusal that a client sees proves little; the absence of packets at
//! the target proves it.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use base::IgnorePoison;
use rustix::net::{AddressFamily, Protocol, RawProtocol, RecvFlags, SocketFlags, SocketType, sockopt};

use super::namespace::Namespace;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// Captured bytes of a packet: the longest IPv4 header, and the ports.
const SNAP_LENGTH: usize = 64;
const POLL_INTERVAL: Duration = Duration::from_millis(100);
const BUFFER_BYTES: usize = 32 << 20;

pub const ICMP: u8 = 1;
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// One kind of packet. The port is the destination's; 0 if there is none, as in a later fragment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Packet {
    pub from: IpAddr,
    pub to: IpAddr,
    pub protocol: u8,
    pub port: u16,
}

/// The recorded packets, with counts.
#[derive(Default)]
pub struct PacketLog(Mutex<HashMap<Packet, u64>>);

impl PacketLog {
    /// Watches a namespace, by threads that end when this is dropped.
    pub(super) fn watch(self: &Arc<Self>, namespace: &Namespace) -> Result<()> {
        for ethertype in [ETHERTYPE_IPV4, ETHERTYPE_IPV6] {
            let socket = namespace.inside(|| packet_socket(ethertype))?;
            let packets = Arc::downgrade(self);
            std::thread::Builder::new().name("capture".to_owned()).spawn(move || read(&socket, &packets))?;
        }
        Ok(())
    }

    fn record(&self, bytes: &[u8]) {
        if let Some(packet) = parse(bytes).filter(|packet| !packet.to.is_loopback()) {
            *self.counts().entry(packet).or_default() += 1;
        }
    }

    fn counts(&self) -> MutexGuard<'_, HashMap<Packet, u64>> {
        self.0.lock().ignore_poison()
    }

    /// Packets to an address.
    pub fn to(&self, address: impl Into<IpAddr>) -> Vec<Packet> {
        let address = address.into();
        self.all(|packet| packet.to == address)
    }

    /// Packets to a port of an address.
    pub fn count(&self, address: impl Into<IpAddr>, protocol: u8, port: u16) -> u64 {
        let address = address.into();
        let counts = self.counts();
        let matching = counts
            .iter()
            .filter(|(packet, _)| packet.to == address && packet.protocol == protocol && packet.port == port);
        matching.map(|(_, count)| count).sum()
    }

    pub fn all(&self, wanted: impl Fn(&Packet) -> bool) -> Vec<Packet> {
        self.counts().keys().filter(|packet| wanted(packet)).copied().collect()
    }

    /// Whether IPv6 packets arrived, apart from neighbour discovery.
    pub fn ipv6(&self) -> Vec<Packet> {
        self.all(|packet| match packet.to {
            IpAddr::V6(to) => !to.is_multicast() && !to.is_unicast_link_local(),
            IpAddr::V4(_) => false,
        })
    }
}

fn packet_socket(ethertype: u16) -> Result<OwnedFd> {
    let number: RawProtocol = NonZeroU32::new(u32::from(ethertype.to_be())).context("no protocol")?;
    let protocol = Some(Protocol::from_raw(number));
    // A socket for one ethertype receives incoming packets only.
    let socket =
        rustix::net::socket_with(AddressFamily::PACKET, SocketType::DGRAM, SocketFlags::CLOEXEC, protocol)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(POLL_INTERVAL))?;
    // As large as allowed: a flood must not displace other packets.
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)?;
    Ok(socket)
}

fn read(socket: &OwnedFd, packets: &Weak<PacketLog>) {
    while let Some(packets) = packets.upgrade() {
        let mut packet = [0; SNAP_LENGTH];
        // An error is a timeout, or a link that changed its state.
        if let Ok((length, _)) = rustix::net::recv(socket, &mut packet[..], RecvFlags::empty()) {
            packets.record(&packet[..length.min(SNAP_LENGTH)]);
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Packet> {
    match bytes.first()? >> 4 {
        4 => {
            let head = bytes.get(..20)?;
            let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x1fff;
            let length = usize::from(head[0] & 0xf) * 4;
            let port = if fragment == 0 { port(head[9], bytes.get(length..)) } else { 0 };
            let from = Ipv4Addr::new(head[12], head[13], head[14], head[15]);
            let to = Ipv4Addr::new(head[16], head[17], head[18], head[19]);
            Some(Packet { from: from.into(), to: to.into(), protocol: head[9], port })
        }
        6 => {
            let head = bytes.get(..40)?;
            let address = |at: usize| {
                let bytes: [u8; 16] = head[at..at + 16].try_into().unwrap_or_default();
                IpAddr::from(Ipv6Addr::from(bytes))
            };
            let port = port(head[6], bytes.get(40..));
            Some(Packet { from: address(8), to: address(24), protocol: head[6], port })
        }
        _ => None,
    }
}

fn port(protocol: u8, rest: Option<&[u8]>) -> u16 {
    let ports = rest.filter(|_| matches!(protocol, TCP | UDP)).and_then(|rest| rest.get(2..4));
    ports.map(|port| u16::from_be_bytes([port[0], port[1]])).unwrap_or_default()
}
