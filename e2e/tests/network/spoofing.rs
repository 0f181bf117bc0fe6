//! Raw packets from the sandbox's root: with forged sources, in fragments, and in tunnelling protocols.

use std::net::{IpAddr, Ipv4Addr};

use e2e::internet::ICMP;
use serde_json::json;

use crate::guest::Guest;
use crate::shared_net;

/// Python helpers that build packets. If raw sockets are refused, nothing is sent.
const PACKETS: &str = r#"
def total(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16: total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
def packet(source, target, protocol, body, fragment=0):
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 7, fragment, 64, protocol, 0) + socket.inet_aton(source) + socket.inet_aton(target)
    return head[:10] + struct.pack("!H", total(head)) + head[12:] + body
def udp(port, data=b"hello"):
    return struct.pack("!HHHH", 40000, port, 8 + len(data), 0) + data
def syn(source, target, port):
    head = struct.pack("!HHIIBBHHH", 40000, port, 1, 0, 0x50, 2, 1000, 0, 0)
    pseudo = socket.inet_aton(source) + socket.inet_aton(target) + struct.pack("!BBH", 0, 6, len(head))
    return head[:16] + struct.pack("!H", total(pseudo + head)) + head[18:]
def echo(data=b"tunnelled"):
    head = struct.pack("!BBHHH", 8, 0, 0, 9, 1) + data
    return head[:2] + struct.pack("!H", total(head)) + head[4:]
def send(packet, target):
    """By a raw socket, which is routed, and by a packet socket, which is not, and which the system call filter refuses."""
    try:
        s = socket.socket(socket.AF_INET, socket.SOCK_RAW, 255)
        s.sendto(packet, (target, 0))
    except OSError: pass
    for link in [name for n, name in socket.if_nameindex() if name != "lo"]:
        for to in (b"\xff" * 6, gateway_mac(link)):
            try:
                s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
                s.sendto(packet, (link, 0x0800, 0, 0, to))
            except OSError: pass
def gateway_mac(link):
    for line in open("/proc/net/arp").readlines()[1:]:
        if link in line: return bytes.fromhex(line.split()[3].replace(":", ""))
    return b"\xff" * 6
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(("203.0.113.1", 9)); own = s.getsockname()[0]
except OSError:
    own = "198.51.100.7"
"#;

#[tokio::test]
async fn packets_with_forged_sources_are_dropped() {
    let net = shared_net().await;
    let target = net.site("spoofed");
    let other = net.open().await;
    let others = other.python("s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('203.0.113.1', 9)); print(s.getsockname()[0])").await;
    let others = others.trim().to_owned();
    for policy in [json!({ "default": "deny", "allow": [target.name] }), json!({ "default": "allow" })] {
        let guest = Guest::new(&net, policy).await;
        // The destination is learnt: only the source is wrong.
        guest.output(&format!("curl -sS --max-time 10 http://{}/hello", target.name)).await;
        let sources = [others.as_str(), "203.0.113.99", "192.0.2.1", "10.64.0.1", "127.0.0.1", "169.254.1.1"];
        let program = format!(
            "{PACKETS}\nfor source in {sources:?}:\n    for body, protocol in ((udp(9999), 17), (syn(source, '{0}', 9998), 6), (echo(), 1)):\n        \
             send(packet(source, '{0}', protocol, body), '{0}')\nprint('sent')",
            target.address
        );
        assert_eq!(guest.python(&program).await, "sent\n");
        assert_eq!(guest.python_without_seccomp(&program).await, "sent\n");
        let forged = net.internet.packets().all(|packet| {
            packet.to == IpAddr::from(target.address)
                && (matches!(packet.port, 9998 | 9999) || packet.protocol == ICMP)
        });
        assert_eq!(forged, []);
        guest.terminate().await;
    }
    // No packet arrived with a source other than the host's.
    let foreign = net.internet.packets().all(|packet| {
        packet.from.is_ipv4()
            && !packet.to.is_multicast()
            && !["192.0.2.1", "192.168.77.1"].contains(&packet.from.to_string().as_str())
    });
    assert_eq!(foreign, []);
}

/// Fragments without ports, and protocols without ports.
#[tokio::test]
async fn fragments_and_other_protocols_are_dropped() {
    let net = shared_net().await;
    let (listed, target) = (net.site("pieces"), net.internet.unused_address().unwrap());
    let guest = net.strict(&[&listed.name]).await;
    guest.output(&format!("curl -sS --max-time 10 http://{}/hello", listed.name)).await;
    let program = format!(
        "{PACKETS}\nfor target in ('{target}', '10.99.3.3'):\n    \
         for protocol in (1, 2, 4, 6, 17, 41, 47, 50, 89, 94, 115, 132, 136):\n        \
         send(packet(own, target, protocol, udp(443) + bytes(64)), target)\n    \
         for fragment in (0x2000, 0x0001, 0x0003, 0x2001):\n        \
         for protocol in (6, 17): send(packet(own, target, protocol, udp(443) + bytes(64), fragment), target)\n    \
         send(packet(own, target, 17, struct.pack('!HHHH', 1, 443, 16, 0)[:4], 0x2000), target)\n    \
         send(packet(own, target, 17, struct.pack('!HHHH', 1, 443, 16, 0)[4:] + bytes(8), 0), target)\nprint('sent')"
    );
    assert_eq!(guest.python(&program).await, "sent\n");
    assert_eq!(guest.python_without_seccomp(&program).await, "sent\n");
    net.assert_no_packets_to(target);
    net.assert_no_packets_to(Ipv4Addr::new(10, 99, 3, 3));
    // Only protocols with known ports reach the listed host.
    let odd = format!(
        "{PACKETS}\nfor protocol in (2, 4, 41, 47, 50, 94, 132): send(packet(own, '{0}', protocol, bytes(64)), '{0}')\nprint('sent')",
        listed.address
    );
    assert_eq!(guest.python(&odd).await, "sent\n");
    let odd = net
        .internet
        .packets()
        .all(|packet| packet.to == IpAddr::from(listed.address) && !matches!(packet.protocol, 1 | 6 | 17));
    assert_eq!(odd, []);
}

#[tokio::test]
async fn pings_to_unknown_addresses_are_dropped() {
    let net = shared_net().await;
    let (listed, target) = (net.site("pinged"), net.internet.unused_address().unwrap());
    let guest = net.strict(&[&listed.name]).await;
    guest.fails(&format!("ping -c 3 -W 1 -s 1000 {target}")).await;
    guest.wait_for_refusal(&["unknown-address"], &target.to_string()).await;
    let program = format!(
        "{PACKETS}\nfor kind in (0, 3, 5, 8, 13, 15, 17): send(packet(own, '{target}', 1, bytes([kind]) + echo()[1:]), '{target}')\nprint('sent')"
    );
    assert_eq!(guest.python(&program).await, "sent\n");
    assert_eq!(guest.python_without_seccomp(&program).await, "sent\n");
    net.assert_no_packets_to(target);
}

/// QUIC is refused, and clients fall back.
#[tokio::test]
async fn datagrams_to_port_443_are_refused() {
    let net = shared_net().await;
    let listed = net.site("quic");
    for port in [443, 8443, 80] {
        net.internet.echo_at(listed.address, port).unwrap();
    }
    let guest = net.strict(&[&listed.name]).await;
    let echo = |port: u16| {
        format!(
            "python3 -c \"import socket; s = socket.socket(2, 2); s.settimeout(2); s.connect(('{}', {port})); s.send(b'x'); print(s.recv(9))\"",
            listed.name
        )
    };
    guest.fails(&echo(443)).await;
    guest.wait_for_refusal(&["port"], &listed.address.to_string()).await;
    assert_eq!(net.internet.packets().count(listed.address, e2e::internet::UDP, 443), 0);
    guest.output(&echo(80)).await;
    let open = net.open().await;
    open.output(&echo(443)).await;
    // Addresses that were not learnt.
    let unknown = net.internet.unused_address().unwrap();
    net.internet.echo_at(unknown, 4000).unwrap();
    let raw = format!(
        "python3 -c \"import socket; s = socket.socket(2, 2); s.settimeout(2); s.connect(('{unknown}', 4000)); s.send(b'x'); print(s.recv(9))\""
    );
    guest.fails(&raw).await;
    guest.wait_for_refusal(&["unknown-address"], &unknown.to_string()).await;
    net.assert_no_packets_to(unknown);
    open.output(&raw).await;
}
