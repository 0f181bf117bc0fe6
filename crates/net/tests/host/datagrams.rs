//! Datagrams up to the largest that UDP allows, in both directions. The host fragments and reassembles them on the uplink, whose MTU
//! is 1500.

use std::collections::HashSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use net::{HostNetwork, HostSettings, Network};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, recv, sendto, socket, sockopt};

use crate::fixture::{Fixture, HOST, PORT, SERVER, allow_all, exchange, only, plug, run};

/// The largest payload of UDP over IPv4.
const LARGEST: usize = 65_507;
const LASTING: Duration = Duration::from_secs(60);

#[tokio::test]
async fn datagrams_of_every_size_pass_in_both_directions() {
    let fixture = Fixture::new();
    // A limit whose burst is the smallest.
    let (network, mut refusals) =
        HostNetwork::open(HostSettings { rate_mbit: 1, ..fixture.settings() }).unwrap();
    network.recover(&[]).await.unwrap();
    let (open, list) = (plug(&network, 0), plug(&network, 1));
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.apply(&list.guest, &only(&["example.com"])).await.unwrap();
    network.parts().kernel.open(list.address, &[SERVER], LASTING).await.unwrap();
    let to = SocketAddrV4::new(SERVER, PORT);
    for guest in [&open, &list] {
        guest.namespace.run_inside(|| {
            let unconnected = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            let connected = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            connected.connect(to).unwrap();
            for bytes in [1472, 1473, 4000, 16_384, LARGEST] {
                for socket in [&unconnected, &connected] {
                    exchange(socket, to, bytes).unwrap_or_else(|error| panic!("{bytes} bytes: {error}"));
                }
            }
        });
    }
    assert!(refusals.try_recv().is_err(), "no fragment came from a sandbox");
}

/// A packet with DF needs no id of its own (RFC 6864), so here all have the id 0.
#[tokio::test]
async fn datagrams_have_distinct_ip_ids() {
    let fixture = Fixture::new();
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let raw = |protocol| socket(AddressFamily::INET, SocketType::RAW, Some(protocol)).unwrap();
    // A raw socket gets reassembled packets with their IP headers.
    let outside = fixture.outside.run_inside(|| raw(ipproto::UDP));
    sockopt::set_socket_timeout(&outside, sockopt::Timeout::Recv, Some(Duration::from_secs(1))).unwrap();
    let inside = one.namespace.run_inside(|| raw(ipproto::RAW));
    let packet = packet_without_id(one.address);
    let mut ids = HashSet::new();
    for _ in 0..20 {
        sendto(&inside, &packet, SendFlags::empty(), &SocketAddrV4::new(SERVER, 0)).unwrap();
        let mut received = [0; 65_536];
        let (length, _) = recv(&outside, &mut received[..], RecvFlags::empty()).unwrap();
        assert_eq!(length, packet.len());
        ids.insert([received[4], received[5]]);
    }
    assert!(ids.len() > 15, "{ids:?}");
}

/// A datagram larger than the uplink's MTU, with DF and the id 0.
fn packet_without_id(from: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0; 4028];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&4028_u16.to_be_bytes());
    packet[6] = 0x40;
    (packet[8], packet[9]) = (64, 17);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&SERVER.octets());
    packet[20..22].copy_from_slice(&PORT.to_be_bytes());
    packet[22..24].copy_from_slice(&PORT.to_be_bytes());
    packet[24..26].copy_from_slice(&4008_u16.to_be_bytes());
    packet
}

/// A server with a larger MTU than the path. Without a limit of TCP's segments the sandbox's kernel would learn the smaller MTU from
/// an ICMP error, and then send datagrams to this server in fragments too.
#[tokio::test]
async fn tcp_to_a_server_with_a_larger_mtu_leaves_the_size_of_datagrams_as_it_is() {
    let fixture = Fixture::new();
    fixture.outside.ip(&format!("route add {HOST}/32 dev up0 advmss 8960"));
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let mut stream = one.connects_to(SERVER, PORT).unwrap();
    let mut bytes = vec![7; 65_536];
    stream.write_all(&bytes).unwrap();
    stream.read_exact(&mut bytes).unwrap();
    let route = run("ip", &["-n", &one.namespace.name, "route", "get", &SERVER.to_string()]);
    assert!(!route.contains("mtu"), "{route}");
    assert!(one.echoes_datagram_from(one.address, SERVER, PORT, LARGEST));
}

/// Few of the largest datagrams would fill the DNS socket's receive buffer for all sandboxes.
#[tokio::test]
async fn datagrams_larger_than_any_question_do_not_reach_the_dns_server() {
    let fixture = Fixture::new();
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let to = SocketAddrV4::new(network.gateway(), 53);
    let send = |bytes: usize| {
        one.namespace.run_inside(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            for _ in 0..100 {
                socket.send_to(&vec![7; bytes], to).unwrap();
            }
        });
    };
    let before = delivered_packets();
    send(LARGEST);
    let after_large = delivered_packets();
    assert!(after_large < before + 50, "{before}, {after_large}");
    send(1472);
    assert!(delivered_packets() >= after_large + 100);
}

/// IP packets that were delivered in the network namespace of this thread.
fn delivered_packets() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let mut lines = text.lines().filter(|line| line.starts_with("Ip: "));
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let column = names.split(' ').position(|name| name == "InDelivers").unwrap();
    values.split(' ').nth(column).unwrap().parse().unwrap()
}
