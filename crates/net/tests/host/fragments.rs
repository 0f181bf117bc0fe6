//! IP fragments of sandboxes: dropped before the host queues them for reassembly. Answers in fragments arrive.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::thread;
use std::time::Duration;

use net::{Network, Reason};
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};

use crate::fixture::{Fixture, HOST, PORT, SERVER, allow_all, exchange, only, plug};

/// More than the host's queue takes: 4 MiB by default (`net.ipv4.ipfrag_high_thresh`).
const FLOOD: u16 = 20_000;
/// Larger than the uplink's MTU.
const LARGE: usize = 6000;
const LARGE_PORT: u16 = 7008;

/// Bytes that wait for reassembly in the network namespace of this thread.
fn queued_bytes(table: &str, label: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap();
    let line = text.lines().find(|line| line.starts_with(label)).unwrap();
    line.split(' ').next_back().unwrap().parse().unwrap()
}

/// Sends first fragments of datagrams without the other fragments.
fn flood_first_fragments(from: Ipv4Addr, to: Ipv4Addr) {
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW)).unwrap();
    let mut packet = vec![0; 1420];
    let length = packet.len() as u16;
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    // The flag that more fragments follow.
    packet[6] = 0x20;
    (packet[8], packet[9]) = (64, 17);
    packet[12..16].copy_from_slice(&from.octets());
    packet[16..20].copy_from_slice(&to.octets());
    packet[22..24].copy_from_slice(&PORT.to_be_bytes());
    for id in 0..FLOOD {
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV4::new(to, 0)).unwrap();
    }
}

#[tokio::test]
async fn first_fragments_are_not_queued_for_reassembly() {
    let fixture = Fixture::new();
    let (network, mut refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, list) = (plug(&network, 0), plug(&network, 1));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&list.guest, &only(&["example.com"])).await.unwrap();
    let outside_reaches_host = || {
        fixture.outside.run_inside(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            exchange(&socket, SocketAddrV4::new(HOST, PORT), LARGE).is_ok()
        })
    };
    assert!(outside_reaches_host());
    for (guest, to) in
        [(&one, SERVER), (&one, network.gateway()), (&list, SERVER), (&list, network.gateway())]
    {
        guest.namespace.run_inside(|| flood_first_fragments(guest.address, to));
        let queued = queued_bytes("sockstat", "FRAG");
        eprintln!("{FLOOD} first fragments to {to}: {queued} bytes wait for reassembly on the host");
        assert!(queued < 64 << 10, "{queued}");
        assert!(outside_reaches_host(), "fragments from the outside are still reassembled");
    }
    let refusal = refusals.recv().await.unwrap();
    assert_eq!((refusal.sandbox, refusal.reason), (one.guest.id.clone(), Reason::Fragment));
    assert_eq!(refusal.target.port, PORT);
}

#[tokio::test]
async fn ipv6_fragments_are_not_queued() {
    let fixture = Fixture::new();
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let [from, to] = [2, 1].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
    one.namespace.ip(&format!("addr add {from}/64 dev eth0 nodad"));
    one.namespace.ip(&format!("neigh replace {to} lladdr 02:73:62:00:00:01 dev eth0"));
    one.namespace.run_inside(|| {
        let raw = socket(AddressFamily::INET6, SocketType::RAW, Some(ipproto::RAW)).unwrap();
        let mut packet = vec![0; 1440];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&1400_u16.to_be_bytes());
        // The next header is a fragment's, and its own next header UDP's.
        (packet[6], packet[7], packet[40]) = (44, 64, 17);
        packet[8..24].copy_from_slice(&from.octets());
        packet[24..40].copy_from_slice(&to.octets());
        packet[43] = 1;
        for id in 0..FLOOD {
            packet[46..48].copy_from_slice(&id.to_be_bytes());
            sendto(&raw, &packet, SendFlags::empty(), &SocketAddrV6::new(to, 0, 0, 0)).unwrap();
        }
    });
    let queued = queued_bytes("sockstat6", "FRAG6");
    assert!(queued < 64 << 10, "{queued}");
}

/// The link of a sandbox that an earlier version started: its kernel sends large datagrams in fragments.
#[tokio::test]
async fn with_a_link_of_a_smaller_mtu_large_datagrams_are_dropped_and_large_answers_arrive() {
    let fixture = Fixture::new();
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (open, list) = (plug(&network, 0), plug(&network, 1));
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.apply(&list.guest, &only(&["example.com"])).await.unwrap();
    network.parts().kernel.open(list.address, &[SERVER], Duration::from_secs(60)).await.unwrap();
    fixture.outside.run_inside(|| {
        let server = UdpSocket::bind((SERVER, LARGE_PORT)).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 16];
            while let Ok((_, from)) = server.recv_from(&mut buffer) {
                let _ = server.send_to(&[7; LARGE], from);
            }
        });
    });
    for guest in [&open, &list] {
        guest.namespace.ip("link set eth0 mtu 1500");
        assert!(guest.echoes_datagram(SERVER));
        assert!(guest.echoes_datagram_from(guest.address, SERVER, PORT, 1472), "one packet");
        guest.namespace.run_inside(|| {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            socket.connect((SERVER, PORT)).unwrap();
            socket.send(&[7; LARGE]).unwrap();
            assert!(socket.recv(&mut [0; 16]).is_err(), "dropped");
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            socket.send_to(b"x", (SERVER, LARGE_PORT)).unwrap();
            assert_eq!(socket.recv(&mut [0; 65_536]).unwrap(), LARGE, "an answer in fragments");
        });
    }
}
