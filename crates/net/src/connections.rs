//! Removes entries of the kernel's connection table.

use std::io;
use std::net::Ipv4Addr;

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_F_NESTED, NLM_F_ACK, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_netfilter::{
    NetfilterHeader, NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily, NetfilterSubsystem,
};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;

/// From this version on, the kernel respects the family in a request to delete many entries.
const VERSION: u8 = 1;
const DELETE: u8 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_IP: u16 = 1;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_FILTER: u16 = 25;
const CTA_FILTER_ORIG_FLAGS: u16 = 1;
const BY_SOURCE_ADDRESS: u32 = 1;

/// Deletes all connections that an address opened. Blocks.
pub fn delete_all(source: Ipv4Addr) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    let address = DefaultNla::new(CTA_IP_V4_SRC, source.octets().to_vec());
    let flags = DefaultNla::new(CTA_FILTER_ORIG_FLAGS, BY_SOURCE_ADDRESS.to_ne_bytes().to_vec());
    let attributes =
        vec![nested(CTA_TUPLE_ORIG, &nested(CTA_TUPLE_IP, &address)), nested(CTA_FILTER, &flags)];
    let subsys = NetfilterSubsystem::Conntrack;
    let message = NetfilterMessageInner::Other { subsys, message_type: DELETE, attributes };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_ACK;
    let family = NetfilterHeader::new(NetfilterProtoFamily::IPv4, VERSION, 0);
    let message = NetfilterMessage::new(family, message);
    let mut request = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(4096);
    let length = socket.recv(&mut answer, 0)?;
    let answer =
        NetlinkMessage::<NetfilterMessage>::deserialize(&answer[..length]).map_err(io::Error::other)?;
    match answer.payload {
        NetlinkPayload::Error(error) if error.code.is_some() => Err(error.to_io()),
        _ => Ok(()),
    }
}

fn nested(kind: u16, inner: &DefaultNla) -> DefaultNla {
    let mut bytes = vec![0; inner.buffer_len()];
    inner.emit(&mut bytes);
    DefaultNla::new(kind | NLA_F_NESTED, bytes)
}
