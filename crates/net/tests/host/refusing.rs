//! Traffic that does not pass under any policy.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::Duration;

use net::{HostNetwork, HostSettings, Network, Reason};

use crate::fixture::{
    BROADCAST, Fixture, HOST, METADATA, OTHER, PORT, PRIVATE, SERVER, allow_all, connect, exchange, only,
    plug, run,
};

#[tokio::test]
async fn closed_addresses_are_closed_and_told_once() {
    let fixture = Fixture::new();
    let (network, mut told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    for address in [PRIVATE, METADATA, HOST, BROADCAST, network.gateway(), Ipv4Addr::new(224, 0, 0, 1)] {
        assert!(!one.talks(address), "{address}");
        assert!(!one.connects(address), "{address}");
        assert!(!one.pings(address), "{address}");
    }
    assert!(one.talks(SERVER));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut seen = Vec::new();
    while let Ok(refusal) = told.try_recv() {
        assert_eq!((&refusal.sandbox, refusal.reason), (&one.guest.id, Reason::ClosedAddress));
        seen.push((refusal.target.address.unwrap(), refusal.target.port, refusal.target.transport));
    }
    let whole = seen.len();
    assert!(seen.iter().any(|(address, port, _)| (*address, *port) == (METADATA, PORT)), "{seen:?}");
    seen.sort_by_key(|entry| format!("{entry:?}"));
    seen.dedup();
    assert_eq!(seen.len(), whole, "each is told once: {seen:?}");
}

#[tokio::test]
async fn a_list_of_names_opens_none_of_them_either() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    // As if a resolver had been deceived.
    let all = [PRIVATE, METADATA, HOST, BROADCAST, network.gateway()];
    network.parts().gate.open(one.address, &all, Duration::from_secs(60)).await.unwrap();
    for address in all {
        assert!(!one.talks(address) && !one.connects(address) && !one.pings(address), "{address}");
    }
}

#[tokio::test]
async fn ports_that_go_around_the_resolver_are_closed_to_a_list_of_names() {
    let fixture = Fixture::new();
    let (network, mut told) = fixture.open();
    network.recover(&[]).await.unwrap();
    for port in [53, 443, 853] {
        fixture.outside.echo(SERVER, port);
    }
    let (strict, open) = (plug(&network, 0), plug(&network, 1));
    network.apply(&strict.guest, &only(&["example.com"])).await.unwrap();
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.parts().gate.open(strict.address, &[SERVER], Duration::from_secs(60)).await.unwrap();
    for port in [53, 443, 853] {
        assert!(!strict.talks_from(strict.address, SERVER, port, 10), "{port}");
        assert!(open.talks_from(open.address, SERVER, port, 10), "{port}");
    }
    assert!(strict.talks(SERVER));
    let refusal = told.recv().await.unwrap();
    assert_eq!((refusal.reason, refusal.target.port), (Reason::Port, 53));
}

#[tokio::test]
async fn a_source_that_is_made_up_is_nobodys() {
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
        assert!(!two.talks_from(source, SERVER, PORT, 10), "{source}");
        assert!(!two.talks_from(source, network.gateway(), 53, 10), "{source}");
    }
    let counted = run("conntrack", &["-L", "-s", &one.address.to_string()]);
    assert!(counted.trim().is_empty(), "it is not even kept track of: {counted}");
    assert!(one.talks(SERVER));
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
    assert!(one.talks(one.address), "itself");
    assert!(!one.talks(two.address) && !one.connects(two.address) && !one.pings(two.address));
    // A route that bypasses the gateway changes nothing: the link has only one other end.
    one.namespace.ip(&format!("route add {}/32 dev eth0 scope link", two.address));
    one.namespace.ip(&format!("neigh replace {} lladdr 02:73:62:00:00:01 dev eth0", two.address));
    assert!(!one.talks(two.address) && !one.connects(two.address));
}

#[tokio::test]
async fn sandboxes_of_another_daemon_are_as_far_away() {
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
    assert!(one.talks(SERVER) && two.talks(SERVER));
    assert!(!one.talks(two.address) && !one.connects(two.address) && !one.pings(two.address));
    assert!(!one.talks_from(one.address, second.gateway(), 53, 10));
}

#[tokio::test]
async fn nobody_opens_a_connection_into_a_sandbox() {
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
    fixture.outside.inside(move || {
        assert!(connect(*to.ip(), to.port()).is_err());
        assert!(exchange(&UdpSocket::bind("0.0.0.0:0").unwrap(), to, 10).is_err());
        for port in [53, 15001] {
            assert!(connect(gateway, port).is_err(), "the gateway's port {port}");
        }
    });
    assert!(one.talks(SERVER));
}

#[tokio::test]
async fn the_gateway_has_dns_and_nothing_else() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let gateway = network.gateway();
    fixture.host.echo(gateway, PORT);
    let one = plug(&network, 0);
    for policy in [allow_all(), only(&["example.com"])] {
        network.apply(&one.guest, &policy).await.unwrap();
        assert!(!one.connects(gateway) && !one.talks(gateway));
        assert!(one.connects_to(gateway, 15001).is_err(), "the proxy is called by no name of its own");
        let dns = one.namespace.inside(move || std::net::TcpStream::connect((gateway, 53)));
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
    assert!(one.talks(PRIVATE) && one.connects(PRIVATE));
    assert!(!one.talks(HOST) && !one.connects(HOST), "a range around the host is not the host");
    assert!(!one.talks(two.address) && !one.connects(two.address), "the pool is never opened");
    assert!(!one.talks(METADATA));
    network.close().await;
    drop(network);
    let living = [(one.guest.clone(), allow_all()), (two.guest.clone(), allow_all())];
    let (network, _told) = HostNetwork::open(opened(&["203.0.113.1/32"])).unwrap();
    network.recover(&living).await.unwrap();
    assert!(one.talks(HOST) && one.connects(HOST));
    assert!(!one.talks(PRIVATE), "what is not opened any more");
}

#[tokio::test]
async fn what_an_operator_closes_is_closed_whatever_is_open() {
    let fixture = Fixture::new();
    let list = |ranges: &[&str]| ranges.iter().map(|range| range.parse().unwrap()).collect();
    let server = format!("{SERVER}/32");
    let settings = HostSettings {
        allow_private: list(&["10.0.0.0/8", "203.0.113.1/32"]),
        closed: list(&[&server, "10.0.0.0/8", "203.0.113.1/32"]),
        ..fixture.settings()
    };
    let (network, mut told) = HostNetwork::open(settings).unwrap();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    for address in [SERVER, PRIVATE, HOST] {
        assert!(!one.talks(address) && !one.connects(address) && !one.pings(address), "{address}");
    }
    assert!(one.talks(OTHER) && one.connects(OTHER), "and nothing beside it");
    let refusal = told.recv().await.unwrap();
    assert_eq!(refusal.reason, Reason::ClosedAddress);
    network.close().await;
    drop(network);
    let (network, _told) = fixture.open();
    network.recover(&[(one.guest.clone(), allow_all())]).await.unwrap();
    assert!(one.talks(SERVER) && one.connects(SERVER), "what is not closed any more");
}

#[tokio::test]
async fn ipv6_ends_at_the_link() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    let inside = run("ip", &["-n", &one.namespace.name, "-6", "addr", "show", "dev", "eth0"]);
    assert!(inside.trim().is_empty(), "{inside}");
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
    one.namespace.inside(|| {
        let socket = std::net::UdpSocket::bind("[fd00:7::2]:0").unwrap();
        socket.send_to(b"hello", "[fd00:7::1]:7").unwrap();
    });
    assert!(listening.recv(&mut [0; 8]).is_err());
}

#[tokio::test]
async fn what_other_rules_make_of_a_closed_address_stays_closed() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    run("nft", &["add table ip others"]);
    run("nft", &["add chain ip others published { type nat hook prerouting priority dstnat ; }"]);
    let inside = Ipv4Addr::new(10, 96, 0, 1);
    for address in [HOST, inside] {
        let rule = format!("add rule ip others published ip daddr {address} dnat to {SERVER}");
        run("nft", &[&rule]);
    }
    for address in [HOST, inside] {
        assert!(!one.talks(address) && !one.connects(address), "{address}");
    }
    assert!(one.talks(SERVER) && one.connects(SERVER));
}

#[tokio::test]
async fn one_sandbox_has_so_many_connections_and_no_more() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, two) = (plug(&network, 0), plug(&network, 1));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&two.guest, &allow_all()).await.unwrap();
    assert!(one.talks(SERVER));
    one.namespace.inside(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for port in 10_000..19_000 {
            let _ = socket.send_to(b"x", (SERVER, port));
        }
    });
    let known = run("conntrack", &["-L", "-s", &one.address.to_string()]).lines().count();
    assert!((8000..=8192).contains(&known), "{known}");
    assert!(!one.talks(SERVER) && two.talks(SERVER));
}
