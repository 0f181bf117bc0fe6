//! Reads the firewall's log and reports its entries as refusals.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use egress::{Parts, Reason, RefusedTarget, Transport};
use netlink::DATAGRAM_BYTES;
use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_netfilter::nflog::{
    ConfigCmd, ConfigMode, PacketNla, Timeout, ULogMessage, config_request,
};
use netlink_packet_netfilter::{NetfilterMessage, NetfilterMessageInner, NetfilterProtoFamily};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use tokio_util::sync::CancellationToken;

use crate::names::Scope;

use crate::notifications::Notifications;

/// Logged bytes of each packet: its header and the ports.
const PACKET_BYTES: u32 = 64;
/// The kernel batches log entries for this time.
const LOG_BATCH_TIME: Duration = Duration::from_millis(50);

/// Runs until `stop`. If the log cannot be read, only the reports are missing.
pub async fn run(scope: Scope, parts: Arc<Parts>, stop: CancellationToken) {
    let opened = tokio::task::spawn_blocking(move || subscribe(scope)).await;
    let mut notifications = match opened
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .and_then(Notifications::of)
    {
        Ok(notifications) => notifications,
        Err(error) => {
            tracing::warn!(%error, "cannot read the firewall's log; packets that it drops cause no events");
            return;
        }
    };
    while let Some(Some(datagram)) = stop.run_until_cancelled(notifications.next()).await {
        match datagram {
            Ok(datagram) => report(&parts, datagram),
            // The buffer overflowed: some entries are lost.
            Err(error) => tracing::debug!(%error, "entries of the firewall's log are lost"),
        }
    }
}

/// Blocks until the kernel has answered.
fn subscribe(scope: Scope) -> io::Result<Socket> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    let settings = vec![
        ConfigCmd::Bind.into(),
        ConfigMode::new_packet(PACKET_BYTES).into(),
        Timeout::from(LOG_BATCH_TIME).into(),
    ];
    let request = config_request(NetfilterProtoFamily::Unspec, scope.log_group(), settings);
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let mut answer = Vec::with_capacity(DATAGRAM_BYTES);
    let length = socket.recv(&mut answer, 0)?;
    let answer =
        NetlinkMessage::<NetfilterMessage>::deserialize(&answer[..length]).map_err(io::Error::other)?;
    if let NetlinkPayload::Error(error) = answer.payload
        && error.code.is_some()
    {
        return Err(error.to_io());
    }
    Ok(socket)
}

fn report(parts: &Parts, datagram: &[u8]) {
    let mut rest = datagram;
    while !rest.is_empty() {
        let Ok(message) = NetlinkMessage::<NetfilterMessage>::deserialize(rest) else { return };
        let step = (message.header.length as usize).next_multiple_of(4).clamp(1, rest.len());
        rest = &rest[step..];
        if let NetlinkPayload::InnerMessage(message) = message.payload
            && let NetfilterMessageInner::ULog(ULogMessage::Packet(attributes)) = message.inner
            && let Some((guest, target, reason)) = read(&attributes)
            && let Some(guest) = parts.registry.find(guest)
        {
            parts.refusals.report(&guest.id, target, reason);
        }
    }
}

fn read(attributes: &[PacketNla]) -> Option<(Ipv4Addr, RefusedTarget, Reason)> {
    let (mut packet, mut reason) = (None, None);
    for attribute in attributes {
        match attribute {
            PacketNla::Payload(bytes) => packet = packet_target(bytes),
            PacketNla::Prefix(prefix) => reason = reason_of(prefix.to_bytes()),
            _ => {}
        }
    }
    let (source, target) = packet?;
    Some((source, target, reason?))
}

/// The prefixes of the log rules in table.nft.
fn reason_of(prefix: &[u8]) -> Option<Reason> {
    match prefix {
        b"closed" => Some(Reason::ClosedAddress),
        b"denied" => Some(Reason::DeniedAddress),
        b"port" => Some(Reason::Port),
        b"unknown" => Some(Reason::UnknownAddress),
        b"fragment" => Some(Reason::Fragment),
        b"many" => Some(Reason::TooMany),
        _ => None,
    }
}

/// Source and destination of an IPv4 packet.
fn packet_target(packet: &[u8]) -> Option<(Ipv4Addr, RefusedTarget)> {
    let head = usize::from(packet.first()? & 0x0f) * 4;
    let address = |at: usize| Some(Ipv4Addr::from(*packet.get(at..)?.first_chunk::<4>()?));
    let transport = match *packet.get(9)? {
        1 => Transport::Icmp,
        6 => Transport::Tcp,
        17 => Transport::Udp,
        other => Transport::Other(other),
    };
    let port = match transport {
        Transport::Tcp | Transport::Udp => u16::from_be_bytes(*packet.get(head + 2..)?.first_chunk::<2>()?),
        _ => 0,
    };
    Some((address(12)?, RefusedTarget { name: None, address: Some(address(16)?), port, transport }))
}

#[cfg(test)]
mod tests;
