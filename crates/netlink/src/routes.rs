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

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    /// What the kernel would list after a request.
    fn listed(change: impl FnOnce(&mut RouteMessage)) -> Option<RouteEntry> {
        let mut message = message(net("10.9.0.0/16"), RouteType::Unicast);
        change(&mut message);
        read(RouteNetlinkMessage::NewRoute(message))
    }

    #[test]
    fn a_route_of_the_daemon_is_read_back() {
        let expected = RouteEntry { range: net("10.9.0.0/16"), link: None, is_ours: true };
        assert_eq!(listed(|_| {}), Some(expected.clone()));
        let through_a_link = listed(|message| message.attributes.push(RouteAttribute::Oif(7)));
        assert_eq!(through_a_link, Some(RouteEntry { link: Some(7), ..expected }));
    }

    #[test]
    fn a_route_without_a_destination_is_the_default_route() {
        let whole = read(RouteNetlinkMessage::NewRoute(message(Ipv4Net::default(), RouteType::Unicast)));
        assert_eq!(whole.unwrap().range, net("0.0.0.0/0"));
        // The kernel refuses a destination that has no bits.
        assert!(message(Ipv4Net::default(), RouteType::Unicast).attributes.is_empty());
    }

    #[test]
    fn only_the_protocol_makes_a_route_the_daemons() {
        let other = |protocol| listed(move |message| message.header.protocol = protocol).unwrap().is_ours;
        assert!(!other(RouteProtocol::Static) && !other(RouteProtocol::Other(84)));
        assert!(other(RouteProtocol::Other(83)));
    }

    #[test]
    fn what_is_no_ipv4_route_is_left_out() {
        let prefix = |bits| listed(move |message| message.header.destination_prefix_length = bits);
        assert!(prefix(32).is_some() && prefix(33).is_none() && prefix(128).is_none());
        let request = message(net("10.9.0.0/16"), RouteType::Unicast);
        assert_eq!(read(RouteNetlinkMessage::DelRoute(request)), None);
    }

    #[test]
    fn the_destination_of_a_request_has_no_host_bits() {
        let request = message(net("10.9.8.7/16"), RouteType::BlackHole);
        let destination = RouteAttribute::Destination(RouteAddress::Inet(Ipv4Addr::new(10, 9, 0, 0)));
        assert_eq!(request.attributes, [destination]);
        assert_eq!(
            (request.header.destination_prefix_length, request.header.kind),
            (16, RouteType::BlackHole)
        );
    }

    #[test]
    fn an_address_that_no_route_leads_to_is_told_from_a_failure() {
        let is = |errno: Errno| is_unreachable(&io::Error::from_raw_os_error(errno.raw_os_error()));
        for errno in [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::INVAL, Errno::ACCESS] {
            assert!(is(errno), "{errno:?}");
        }
        for errno in [Errno::PERM, Errno::NOBUFS, Errno::NODEV] {
            assert!(!is(errno), "{errno:?}");
        }
        assert!(!is_unreachable(&io::ErrorKind::InvalidData.into()));
    }
}
