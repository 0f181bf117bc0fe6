//! Traffic that does not pass under any policy.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use net::{HostNetwork, HostSettings, Network, Reason};

use crate::fixture::{
    BROADCAST, Fixture, HOST, METADATA, OTHER, PORT, PRIVATE, SERVER, allow_all, connect, exchange, only,
    plug, run,
};

#[tokio::test]
async fn closed_addresses_are_refused_and_reported_once() {
    let fixture = Fixture::new();
    let (network, mut refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    for address in [PRIVATE, METADATA, HOST, BROADCAST, network.gateway(), Ipv4Addr::new(224, 0, 0, 1)] {
        assert!(!one.echoes_datagram(address), "{address}");
        assert!(!one.connects(address), "{address}");
        assert!(!one.pings(address), "{address}");
    }
    assert!(one.echoes_datagram(SERVER));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut seen = Vec::new();
    while let Ok(refusal) = refusals.try_recv() {
        assert_eq!((&refusal.sandbox, refusal.reason), (&one.guest.id, Reason::ClosedAddress));
        seen.push((refusal.target.address.unwrap(), refusal.target.port, refusal.target.transport));
    }
    let whole = seen.len();
    assert!(seen.iter().any(|(address, port, _)| (*address, *port) == (METADATA, PORT)), "{seen:?}");
    seen.sort_by_key(|entry| format!("{entry:?}"));
    seen.dedup();
    assert_eq!(seen.len(), whole, "each is reported once: {seen:?}");
}

/// `told` has 16,384 elements for all sandboxes, and one sandbox can fill it. Then refusals of others are reported more than once.
#[tokio::test]
async fn a_sandbox_that_fills_the_set_of_refusals_hides_none_of_another() {
    let fixture = Fixture::new();
    let (network, mut refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (busy, calm) = (plug(&network, 0), plug(&network, 1));
    network.apply(&busy.guest, &allow_all()).await.unwrap();
    network.apply(&calm.guest, &allow_all()).await.unwrap();
    let sent = busy.namespace.run_inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        let ports = (1..=u16::MAX).step_by(3);
        // An error is that of an earlier datagram.
        ports.filter(|port| socket.send_to(b"x", SocketAddrV4::new(PRIVATE, *port)).is_ok()).count()
    });
    assert!(sent > 16_384, "{sent} datagrams");
    assert!(!calm.echoes_datagram(METADATA) && !calm.echoes_datagram(PRIVATE));
    assert!((0..20).any(|_| calm.echoes_datagram(SERVER)));
    let mut reported = Vec::new();
    let begin = Instant::now();
    while !(reported.contains(&METADATA) && reported.contains(&PRIVATE)) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{reported:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
        while let Ok(refusal) = refusals.try_recv() {
            if refusal.sandbox == calm.guest.id {
                reported.push(refusal.target.address.unwrap());
            }
        }
    }
    assert!(reported.len() <= 64, "{} reports", reported.len());
}

#[tokio::test]
async fn default_deny_does_not_open_closed_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    // As after a forged DNS answer.
    let all = [PRIVATE, METADATA, HOST, BROADCAST, network.gateway()];
    network.parts().kernel.open(one.address, &all, Duration::from_secs(60)).await.unwrap();
    for address in all {
        assert!(!one.echoes_datagram(address) && !one.connects(address) && !one.pings(address), "{address}");
    }
}

/// The proxy has to accept a connection before it can refuse it, which looks to the client as if it were connected.
#[tokio::test]
async fn under_default_deny_a_connection_that_cannot_pass_is_not_established() {
    let fixture = Fixture::new();
    let (network, mut refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    let attempt = |to: Ipv4Addr, port: u16| {
        one.namespace.run_inside(move || {
            let attempt = TcpStream::connect_timeout(&SocketAddr::from((to, port)), Duration::from_secs(5));
            attempt.map(drop).map_err(|error| error.kind())
        })
    };
    let refused = Err(ErrorKind::ConnectionRefused);
    for (to, port) in [
        (SERVER, 22),
        (SERVER, PORT),
        (SERVER, 8443),
        (SERVER, 53),
        (PRIVATE, PORT),
        (METADATA, PORT),
        (HOST, PORT),
    ] {
        assert_eq!(attempt(to, port), refused, "{to}:{port}");
    }
    // There the name decides, which the client sends first.
    for port in [80, 443] {
        assert_eq!(attempt(SERVER, port), Ok(()), "{port}");
    }
    let kernel = &network.parts().kernel;
    kernel.open(one.address, &[SERVER, PRIVATE], Duration::from_secs(60)).await.unwrap();
    assert_eq!(attempt(SERVER, PORT), Ok(()), "the proxy decides about a learnt address");
    for (to, port) in [(SERVER, 53), (SERVER, 853), (OTHER, PORT), (PRIVATE, PORT)] {
        assert_eq!(attempt(to, port), refused, "{to}:{port}");
    }
    kernel.close(one.address, &[SERVER]).await.unwrap();
    assert_eq!(attempt(SERVER, PORT), refused);
    let expected = [
        ((SERVER, 22), Reason::UnknownAddress),
        ((SERVER, 8443), Reason::UnknownAddress),
        ((SERVER, 853), Reason::Port),
        ((METADATA, PORT), Reason::ClosedAddress),
        ((HOST, PORT), Reason::ClosedAddress),
    ];
    let mut reasons = HashMap::new();
    let reported = tokio::time::timeout(Duration::from_secs(20), async {
        while expected.iter().any(|(target, reason)| reasons.get(target) != Some(reason)) {
            let refusal = refusals.recv().await.unwrap();
            reasons.insert((refusal.target.address.unwrap(), refusal.target.port), refusal.reason);
        }
    });
    assert!(reported.await.is_ok(), "{reasons:?}");
}

#[tokio::test]
async fn ports_of_other_resolvers_are_closed_under_default_deny() {
    let fixture = Fixture::new();
    let (network, mut refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    for port in [53, 443, 853] {
        fixture.outside.echo(SERVER, port);
    }
    let (strict, open) = (plug(&network, 0), plug(&network, 1));
    network.apply(&strict.guest, &only(&["example.com"])).await.unwrap();
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.parts().kernel.open(strict.address, &[SERVER], Duration::from_secs(60)).await.unwrap();
    for port in [53, 443, 853] {
        assert!(!strict.echoes_datagram_from(strict.address, SERVER, port, 10), "{port}");
        assert!(open.echoes_datagram_from(open.address, SERVER, port, 10), "{port}");
    }
    assert!(strict.echoes_datagram(SERVER));
    let refusal = refusals.recv().await.unwrap();
    assert_eq!((refusal.reason, refusal.target.port), (Reason::Port, 53));
}

#[tokio::test]
async fn packets_with_a_forged_source_are_dropped() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, two) = (plug(&network, 0), plug(&network, 1));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&two.guest, &only(&["example.com"])).await.unwrap();
    // Only root of the namespace may do this, not a sandbox.
    two.namespace.ip(&format!("addr add {}/32 dev eth0", one.address));
    two.namespace.ip("addr add 198.51.100.77/32 dev eth0");
    for source in [one.address, Ipv4Addr::new(198, 51, 100, 77)] {
        assert!(!two.echoes_datagram_from(source, SERVER, PORT, 10), "{source}");
        assert!(!two.echoes_datagram_from(source, network.gateway(), 53, 10), "{source}");
    }
    let counted = run("conntrack", &["-L", "-s", &one.address.to_string()]);
    assert!(counted.trim().is_empty(), "the connection is not tracked: {counted}");
    assert!(one.echoes_datagram(SERVER));
}

#[tokio::test]
async fn sandboxes_do_not_reach_each_other() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, two) = (plug(&network, 0), plug(&network, 1));
    for guest in [&one, &two] {
        network.apply(&guest.guest, &allow_all()).await.unwrap();
        guest.namespace.echo(guest.address, PORT);
    }
    assert!(one.echoes_datagram(one.address), "itself");
    assert!(!one.echoes_datagram(two.address) && !one.connects(two.address) && !one.pings(two.address));
    // A route that bypasses the gateway changes nothing: the link has only one other end.
    one.namespace.ip(&format!("route add {}/32 dev eth0 scope link", two.address));
    one.namespace.ip(&format!("neigh replace {} lladdr 02:73:62:00:00:01 dev eth0", two.address));
    assert!(!one.echoes_datagram(two.address) && !one.connects(two.address));
}

#[tokio::test]
async fn sandboxes_of_different_daemons_do_not_reach_each_other() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let settings = HostSettings { data_dir: elsewhere.path().to_owned(), ..fixture.settings() };
    let (second, _told) = HostNetwork::open(settings).unwrap();
    second.recover(&[]).await.unwrap();
    assert_ne!(network.pool(), second.pool());
    let (one, two) = (plug(&network, 0), plug(&second, 0));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    second.apply(&two.guest, &allow_all()).await.unwrap();
    two.namespace.echo(two.address, PORT);
    assert!(one.echoes_datagram(SERVER) && two.echoes_datagram(SERVER));
    assert!(!one.echoes_datagram(two.address) && !one.connects(two.address) && !one.pings(two.address));
    assert!(!one.echoes_datagram_from(one.address, second.gateway(), 53, 10));
}

#[tokio::test]
async fn connections_into_a_sandbox_are_refused() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    one.namespace.echo(one.address, PORT);
    let to = SocketAddrV4::new(one.address, PORT);
    // The host itself.
    assert!(connect(one.address, PORT).is_err());
    assert!(exchange(&UdpSocket::bind("0.0.0.0:0").unwrap(), to, 10).is_err());
    // A neighbour of the host that has a route.
    fixture.outside.ip(&format!("route add {} via {HOST}", network.pool()));
    let gateway = network.gateway();
    fixture.outside.run_inside(move || {
        assert!(connect(*to.ip(), to.port()).is_err());
        assert!(exchange(&UdpSocket::bind("0.0.0.0:0").unwrap(), to, 10).is_err());
        for port in [53, 15001] {
            assert!(connect(gateway, port).is_err(), "the gateway's port {port}");
        }
    });
    assert!(one.echoes_datagram(SERVER));
}

#[tokio::test]
async fn only_dns_of_the_gateway_is_reachable() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let gateway = network.gateway();
    fixture.host.echo(gateway, PORT);
    let one = plug(&network, 0);
    for policy in [allow_all(), only(&["example.com"])] {
        network.apply(&one.guest, &policy).await.unwrap();
        assert!(!one.connects(gateway) && !one.echoes_datagram(gateway));
        assert!(one.connects_to(gateway, 15001).is_err(), "the proxy's port is not reachable directly");
        let dns = one.namespace.run_inside(move || std::net::TcpStream::connect((gateway, 53)));
        assert!(dns.is_ok());
    }
}

#[tokio::test]
async fn an_operator_opens_ranges_and_single_addresses_of_the_host() {
    let fixture = Fixture::new();
    let opened = |list: &[&str]| HostSettings {
        allow_private: list.iter().map(|range| range.parse().unwrap()).collect(),
        ..fixture.settings()
    };
    let (network, _told) = HostNetwork::open(opened(&["10.0.0.0/8", "203.0.113.0/24"])).unwrap();
    network.recover(&[]).await.unwrap();
    let (one, two) = (plug(&network, 0), plug(&network, 1));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&two.guest, &allow_all()).await.unwrap();
    two.namespace.echo(two.address, PORT);
    assert!(one.echoes_datagram(PRIVATE) && one.connects(PRIVATE));
    assert!(!one.echoes_datagram(HOST) && !one.connects(HOST), "a range around the host is not the host");
    assert!(!one.echoes_datagram(two.address) && !one.connects(two.address), "the pool stays closed");
    assert!(!one.echoes_datagram(METADATA));
    network.close().await;
    drop(network);
    let living = [(one.guest.clone(), allow_all()), (two.guest.clone(), allow_all())];
    let (network, _told) = HostNetwork::open(opened(&["203.0.113.1/32"])).unwrap();
    network.recover(&living).await.unwrap();
    assert!(one.echoes_datagram(HOST) && one.connects(HOST));
    assert!(!one.echoes_datagram(PRIVATE), "a range that is no longer opened");
}

#[tokio::test]
async fn egress_closed_takes_precedence() {
    let fixture = Fixture::new();
    let list = |ranges: &[&str]| ranges.iter().map(|range| range.parse().unwrap()).collect();
    let server = format!("{SERVER}/32");
    let settings = HostSettings {
        allow_private: list(&["10.0.0.0/8", "203.0.113.1/32"]),
        closed: list(&[&server, "10.0.0.0/8", "203.0.113.1/32"]),
        ..fixture.settings()
    };
    let (network, mut refusals) = HostNetwork::open(settings).unwrap();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    for address in [SERVER, PRIVATE, HOST] {
        assert!(!one.echoes_datagram(address) && !one.connects(address) && !one.pings(address), "{address}");
    }
    assert!(one.echoes_datagram(OTHER) && one.connects(OTHER), "other addresses stay open");
    let refusal = refusals.recv().await.unwrap();
    assert_eq!(refusal.reason, Reason::ClosedAddress);
    network.close().await;
    drop(network);
    let (network, _told) = fixture.open();
    network.recover(&[(one.guest.clone(), allow_all())]).await.unwrap();
    assert!(one.echoes_datagram(SERVER) && one.connects(SERVER), "a range that is no longer closed");
}

#[tokio::test]
async fn ipv6_ends_at_the_link() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let addresses = run("ip", &["-n", &one.namespace.name, "-6", "addr", "show", "dev", "eth0"]);
    assert!(addresses.trim().is_empty(), "{addresses}");
    let links = run("ip", &["-o", "link", "show", "type", "veth"]);
    let link = links.split_whitespace().find(|word| word.starts_with("sb")).unwrap();
    let link = link.split('@').next().unwrap();
    // Even if another program turned it on again.
    std::fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "0").unwrap();
    run("ip", &["addr", "add", "fd00:7::1/64", "dev", link, "nodad"]);
    one.namespace.ip("addr add fd00:7::2/64 dev eth0 nodad");
    one.namespace.ip("neigh replace fd00:7::1 lladdr 02:73:62:00:00:01 dev eth0");
    let listening = std::net::UdpSocket::bind("[fd00:7::1]:7").unwrap();
    listening.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
    one.namespace.run_inside(|| {
        let socket = std::net::UdpSocket::bind("[fd00:7::2]:0").unwrap();
        socket.send_to(b"hello", "[fd00:7::1]:7").unwrap();
    });
    assert!(listening.recv(&mut [0; 8]).is_err());
}

#[tokio::test]
async fn redirects_of_other_tables_do_not_open_closed_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    run("nft", &["add table ip others"]);
    run("nft", &["add chain ip others published { type nat hook prerouting priority dstnat ; }"]);
    // Outside the range that pools are chosen from: a redirect of the gateway is checked by where it leads.
    let service = Ipv4Addr::new(10, 200, 0, 1);
    for address in [HOST, service] {
        let rule = format!("add rule ip others published ip daddr {address} dnat to {SERVER}");
        run("nft", &[&rule]);
    }
    for address in [HOST, service] {
        assert!(!one.echoes_datagram(address) && !one.connects(address), "{address}");
    }
    assert!(one.echoes_datagram(SERVER) && one.connects(SERVER));
}

#[tokio::test]
async fn connections_of_a_sandbox_are_limited() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, two) = (plug(&network, 0), plug(&network, 1));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&two.guest, &allow_all()).await.unwrap();
    assert!(one.echoes_datagram(SERVER));
    one.namespace.run_inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for port in 10_000..19_000 {
            let _ = socket.send_to(b"x", (SERVER, port));
        }
    });
    let known = run("conntrack", &["-L", "-s", &one.address.to_string()]).lines().count();
    assert!((8000..=8192).contains(&known), "{known}");
    assert!(!one.echoes_datagram(SERVER) && two.echoes_datagram(SERVER));
}
