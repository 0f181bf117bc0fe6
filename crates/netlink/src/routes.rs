//! The host's routes.

use std::io;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::socket::{RouteSocket, is_absent};

/// The routing protocol number that marks the daemon's routes.
const PROTOCOL: RouteProtocol = RouteProtocol::Other(83);

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteEntry {
    pub range: Ipv4Net,
    pub link: Option<u32>,
    pub is_ours: bool,
}

fn message(range: Ipv4Net, kind: RouteType) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = range.prefix_len();
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = PROTOCOL;
    message.header.kind = kind;
    if range.prefix_len() > 0 {
        message.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(range.network())));
    }
    message
}

/// The IPv4 routes of the namespace of the socket.
pub fn all(socket: &RouteSocket) -> io::Result<Vec<RouteEntry>> {
    let mut question = RouteMessage::default();
    question.header.address_family = AddressFamily::Inet;
    let found = socket.dump(RouteNetlinkMessage::GetRoute(question))?;
    Ok(found.into_iter().filter_map(read).collect())
}

fn read(message: RouteNetlinkMessage) -> Option<RouteEntry> {
    let RouteNetlinkMessage::NewRoute(message) = message else { return None };
    let (mut address, mut link) = (Ipv4Addr::UNSPECIFIED, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Destination(RouteAddress::Inet(found)) => address = *found,
            RouteAttribute::Oif(found) => link = Some(*found),
            _ => {}
        }
    }
    let range = Ipv4Net::new(address, message.header.destination_prefix_length).ok()?;
    Some(RouteEntry { range, link, is_ours: message.header.protocol == PROTOCOL })
}

/// Claims a block by a blackhole route, which also drops packets to unused addresses. Fails with `AlreadyExists` if it is
/// taken.
pub fn claim(socket: &RouteSocket, block: Ipv4Net) -> io::Result<()> {
    let message = message(block, RouteType::BlackHole);
    socket.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Removes the route that reserves a block. No error if there is none.
pub fn give_back(socket: &RouteSocket, block: Ipv4Net) -> io::Result<()> {
    let message = message(block, RouteType::BlackHole);
    match socket.change(RouteNetlinkMessage::DelRoute(message), 0) {
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Adds the route to one address behind a link.
pub fn add_host(socket: &RouteSocket, address: Ipv4Addr, link: u32) -> io::Result<()> {
    let mut message = message(Ipv4Net::from(address), RouteType::Unicast);
    message.header.scope = RouteScope::Link;
    message.attributes.push(RouteAttribute::Oif(link));
    socket.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Adds a default route through a gateway outside of the link's own network.
pub fn add_default(socket: &RouteSocket, gateway: Ipv4Addr, link: u32) -> io::Result<()> {
    let mut message = message(Ipv4Net::default(), RouteType::Unicast);
    message.header.flags = RouteFlags::Onlink;
    message.attributes.push(RouteAttribute::Gateway(RouteAddress::Inet(gateway)));
    message.attributes.push(RouteAttribute::Oif(link));
    socket.change(RouteNetlinkMessage::NewRoute(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Whether packets to an address are delivered to this host: it is one of its own, or a broadcast or multicast address of
/// one of its networks.
pub fn is_host(socket: &RouteSocket, address: Ipv4Addr) -> io::Result<bool> {
    let mut question = RouteMessage::default();
    question.header.address_family = AddressFamily::Inet;
    question.header.destination_prefix_length = 32;
    question.attributes.push(RouteAttribute::Destination(RouteAddress::Inet(address)));
    match socket.get(RouteNetlinkMessage::GetRoute(question)) {
        Ok(RouteNetlinkMessage::NewRoute(route)) => Ok(!matches!(route.header.kind, RouteType::Unicast)),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        // An address without a route is not the host's.
        Err(error) if is_unreachable(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    use rustix::io::Errno;
    // A blackhole route answers `INVAL`, a prohibiting one `ACCESS`.
    [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::INVAL, Errno::ACCESS]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}
