//! Packets in the form of the kernel's log.

use super::*;

fn packet(protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 64, 0, 2, 192, 0, 2, 7];
    packet.extend(rest);
    packet
}

#[test]
fn a_datagram_names_its_port() {
    let (source, target) = packet_target(&packet(17, &[0xc0, 0, 0x01, 0xbb])).unwrap();
    assert_eq!(source, Ipv4Addr::new(10, 64, 0, 2));
    assert_eq!(target.address, Some(Ipv4Addr::new(192, 0, 2, 7)));
    assert_eq!((target.port, target.transport), (443, Transport::Udp));
}

#[test]
fn a_ping_has_no_port_and_truncated_packets_are_ignored() {
    let (_, ping) = packet_target(&packet(1, &[8, 0, 0, 0])).unwrap();
    assert_eq!((ping.port, ping.transport), (0, Transport::Icmp));
    assert_eq!(packet_target(&packet(6, &[1])), None);
    assert_eq!(packet_target(&packet(6, &[])[..15]), None);
    assert_eq!(packet_target(&[]), None);
}

#[test]
fn each_log_prefix_of_the_table_has_a_reason() {
    let words =
        super::super::plan::TEMPLATE.split("log prefix \"").skip(1).filter_map(|rest| rest.split('"').next());
    let mut count = 0;
    for word in words {
        count += 1;
        assert!(reason_of(word.as_bytes()).is_some(), "{word}");
    }
    assert!(count >= 4);
}
