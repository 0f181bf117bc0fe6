//! The host's links: the gateway's, and one for each sandbox.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{AddressAttribute, AddressMessage, AddressScope};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags,
    LinkInfo, LinkMessage, State,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::RouteType;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use crate::socket::{RouteSocket, is_absent};

/// The MAC address of the host's end of all links, which can share it, because a link has only two ends.
pub const HOST_MAC: [u8; 6] = [0x02, 0x73, 0x62, 0, 0, 1];
/// The MTU of both ends of a sandbox's link: the size of the largest IP packet, so that a sandbox's kernel fragments no datagram.
/// The host drops a sandbox's fragments, and fragments what it forwards where the next link needs it.
const MTU: u32 = 65_535;

/// A link as the kernel lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub alias: Option<String>,
    /// Whether the link has a carrier.
    pub carries: bool,
    pub bytes_received: u64,
    pub bytes_sent: u64,
}

/// The links of the namespace of the socket.
pub fn all(socket: &RouteSocket) -> io::Result<Vec<Link>> {
    let found = socket.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
    Ok(found.into_iter().filter_map(read).collect())
}

/// `None` if there is no such link.
pub fn find(socket: &RouteSocket, name: &str) -> io::Result<Option<Link>> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    match socket.get(RouteNetlinkMessage::GetLink(message)) {
        Ok(found) => Ok(read(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `None` if there is no such link.
pub fn with_index(socket: &RouteSocket, index: u32) -> io::Result<Option<Link>> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    match socket.get(RouteNetlinkMessage::GetLink(message)) {
        Ok(found) => Ok(read(found)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read(message: RouteNetlinkMessage) -> Option<Link> {
    let RouteNetlinkMessage::NewLink(message) = message else { return None };
    let (mut name, mut alias, mut carries, mut received, mut sent) = (None, None, false, 0, 0);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(found) => name = Some(found),
            LinkAttribute::IfAlias(found) => alias = Some(found),
            LinkAttribute::OperState(state) => carries = state == State::Up,
            LinkAttribute::Stats64(stats) => (received, sent) = (stats.rx_bytes, stats.tx_bytes),
            _ => {}
        }
    }
    let index = message.header.index;
    Some(Link { index, name: name?, alias, carries, bytes_received: received, bytes_sent: sent })
}

/// Creates the gateway's link: a bridge without ports, which every kernel with containers supports. Fails with
/// `AlreadyExists` if the name is taken.
pub fn add_gateway(socket: &RouteSocket, name: &str, alias: &str) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]));
    socket.change(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)?;
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    message.attributes.push(LinkAttribute::IfAlias(alias.to_owned()));
    socket.change(RouteNetlinkMessage::SetLink(message), 0)
}

/// Creates both ends of a veth pair, the far one directly in its namespace.
pub fn add_wire(socket: &RouteSocket, wire: &Wire<'_>, namespace: BorrowedFd<'_>) -> io::Result<()> {
    let mut far = LinkMessage::default();
    (far.header.flags, far.header.change_mask) = (LinkFlags::Noarp, LinkFlags::Noarp);
    far.attributes = vec![
        LinkAttribute::IfName(wire.far_name.to_owned()),
        LinkAttribute::Address(wire.far_mac.to_vec()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::NetNsFd(namespace.as_raw_fd()),
    ];
    let mut near = LinkMessage::default();
    (near.header.flags, near.header.change_mask) = (LinkFlags::Noarp, LinkFlags::Noarp);
    near.attributes = vec![
        LinkAttribute::IfName(wire.name.to_owned()),
        LinkAttribute::Address(HOST_MAC.to_vec()),
        LinkAttribute::Mtu(MTU),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(far))),
        ]),
    ];
    socket.change(RouteNetlinkMessage::NewLink(near), NLM_F_CREATE | NLM_F_EXCL)
}

/// The parameters of a veth pair.
pub struct Wire<'a> {
    pub name: &'a str,
    pub far_name: &'a str,
    pub far_mac: [u8; 6],
}

/// Turns off automatic IPv6 addresses of a link.
pub fn without_ipv6_address(socket: &RouteSocket, index: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    message.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![
        AfSpecInet6::AddrGenMode(In6AddrGenMode::None),
    ])]));
    socket.change(RouteNetlinkMessage::SetLink(message), 0)
}

/// Turns off IPv6 on a link of the host's namespace.
pub fn without_ipv6(name: &str) -> io::Result<()> {
    match std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1") {
        // The kernel has no IPv6.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Sets a link up. No error if it is.
pub fn up(socket: &RouteSocket, index: u32) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.header.index = index;
    (message.header.flags, message.header.change_mask) = (LinkFlags::Up, LinkFlags::Up);
    socket.change(RouteNetlinkMessage::SetLink(message), 0)
}

/// No error if there is none.
pub fn remove(socket: &RouteSocket, name: &str) -> io::Result<()> {
    let mut message = LinkMessage::default();
    message.attributes.push(LinkAttribute::IfName(name.to_owned()));
    match socket.change(RouteNetlinkMessage::DelLink(message), 0) {
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Removes a link if it still has this name. No error if there is none.
pub fn remove_exactly(socket: &RouteSocket, index: u32, name: &str) -> io::Result<()> {
    if with_index(socket, index)?.is_none_or(|link| link.name != name) {
        return Ok(());
    }
    let mut message = LinkMessage::default();
    message.header.index = index;
    match socket.change(RouteNetlinkMessage::DelLink(message), 0) {
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Adds an address to a link, without a route to a network.
pub fn set_address(socket: &RouteSocket, index: u32, address: Ipv4Addr) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 32;
    message.header.scope = AddressScope::Universe;
    message.header.index = index;
    message.attributes =
        vec![AddressAttribute::Local(IpAddr::V4(address)), AddressAttribute::Address(IpAddr::V4(address))];
    socket.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_REPLACE)
}

/// Removes an address. No error if the link does not have it.
pub fn unset_address(socket: &RouteSocket, index: u32, address: Ipv4Addr) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = 32;
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(IpAddr::V4(address))];
    match socket.change(RouteNetlinkMessage::DelAddress(message), 0) {
        Err(error) if !is_absent(&error) => Err(error),
        _ => Ok(()),
    }
}

/// The addresses of a link.
pub fn addresses(socket: &RouteSocket, index: u32) -> io::Result<Vec<Ipv4Addr>> {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    let found = socket.dump(RouteNetlinkMessage::GetAddress(message))?;
    let ours = found.into_iter().filter_map(|message| match message {
        RouteNetlinkMessage::NewAddress(message) if message.header.index == index => Some(message.attributes),
        _ => None,
    });
    let locals = ours.flatten().filter_map(|attribute| match attribute {
        AddressAttribute::Local(IpAddr::V4(address)) => Some(address),
        _ => None,
    });
    Ok(locals.collect())
}

/// Adds a permanent neighbour entry for the other end. There is no ARP, so no sandbox can claim another address.
pub fn set_neighbour(socket: &RouteSocket, index: u32, address: Ipv4Addr, mac: [u8; 6]) -> io::Result<()> {
    let mut message = NeighbourMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.ifindex = index;
    message.header.state = NeighbourState::Permanent;
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)),
        NeighbourAttribute::LinkLayerAddress(mac.to_vec()),
    ];
    socket.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(attributes: Vec<LinkAttribute>) -> Option<Link> {
        let mut message = LinkMessage::default();
        message.header.index = 5;
        message.attributes = attributes;
        read(RouteNetlinkMessage::NewLink(message))
    }

    fn name() -> LinkAttribute {
        LinkAttribute::IfName("sb1".to_owned())
    }

    #[test]
    fn a_link_has_a_name_and_what_else_the_kernel_lists() {
        let expected = Link {
            index: 5,
            name: "sb1".to_owned(),
            alias: None,
            carries: false,
            bytes_received: 0,
            bytes_sent: 0,
        };
        assert_eq!(listed(vec![name()]), Some(expected.clone()));
        let alias = LinkAttribute::IfAlias("sandbox".to_owned());
        let up = LinkAttribute::OperState(State::Up);
        let full = listed(vec![alias, name(), up]);
        assert_eq!(full, Some(Link { alias: Some("sandbox".to_owned()), carries: true, ..expected }));
    }

    #[test]
    fn a_link_without_a_name_is_left_out() {
        assert_eq!(listed(vec![LinkAttribute::IfAlias("sandbox".to_owned())]), None);
        assert_eq!(listed(vec![]), None);
        let mut removed = LinkMessage::default();
        removed.attributes = vec![name()];
        assert_eq!(read(RouteNetlinkMessage::DelLink(removed)), None);
    }

    #[test]
    fn only_a_link_that_is_up_carries() {
        for state in [State::Down, State::LowerLayerDown, State::Dormant, State::Unknown, State::Testing] {
            let link = listed(vec![name(), LinkAttribute::OperState(state)]).unwrap();
            assert!(!link.carries, "{state:?}");
        }
    }
}
