//! Lists of networks in policies: allowed and denied addresses, for every protocol, and changes of the lists.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use api::{EgressDefault, EgressPolicy};
use net::{HostNetwork, Network, Reason};

use crate::fixture::{
    BROADCAST, Fixture, HOST, METADATA, OTHER, PORT, PRIVATE, SERVER, TestSandbox, allow_all, exchange,
    exchange_data, only, plug, plug_into, run,
};

const NETWORK: &str = "198.51.100.0/24";

fn policy(default: EgressDefault, allowed: &[&str], denied: &[&str]) -> EgressPolicy {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect();
    EgressPolicy { default, allow: Vec::new(), allow_networks: list(allowed), deny_networks: list(denied) }
}

fn open(allowed: &[&str], denied: &[&str]) -> EgressPolicy {
    policy(EgressDefault::Allow, allowed, denied)
}

fn strict(allowed: &[&str], denied: &[&str]) -> EgressPolicy {
    policy(EgressDefault::Deny, allowed, denied)
}

/// Whether an address is reached by TCP, UDP and ping: all or none.
fn reaches(one: &TestSandbox, to: Ipv4Addr) -> bool {
    let all = [one.connects(to), one.echoes_datagram(to), one.pings(to)];
    assert!(all == [all[0]; 3], "{to}: {all:?}");
    all[0]
}

async fn apply(network: &HostNetwork, one: &TestSandbox, policy: &EgressPolicy) {
    network.apply(&one.guest, policy).await.unwrap();
}

#[tokio::test]
async fn lists_decide_by_the_address() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, beside) = (plug(&network, 0), plug(&network, 1));
    apply(&network, &beside, &allow_all()).await;
    // Whether SERVER and OTHER, which is the next address, are reached.
    for (policy, expected) in [
        (open(&[], &["198.51.100.10"]), [false, true]),
        (open(&[], &[NETWORK]), [false, false]),
        (open(&["198.51.100.11"], &[NETWORK]), [false, true]),
        (open(&[NETWORK], &["198.51.100.11"]), [true, true]),
        (open(&["198.51.100.10"], &["0.0.0.0/0"]), [true, false]),
        (open(&["198.51.100.11"], &["198.51.0.0/16", NETWORK, "198.51.100.10"]), [false, true]),
        (open(&["198.51.100.11"], &[]), [true, true]),
        (strict(&[], &[]), [false, false]),
        (strict(&["198.51.100.10"], &[]), [true, false]),
        (strict(&["198.51.0.0/16"], &[NETWORK]), [true, true]),
        (strict(&[], &["203.0.113.0/24"]), [false, false]),
        (strict(&["0.0.0.0/0"], &[]), [true, true]),
        (allow_all(), [true, true]),
    ] {
        apply(&network, &one, &policy).await;
        assert_eq!([reaches(&one, SERVER), reaches(&one, OTHER)], expected, "{policy:?}");
        assert!(reaches(&beside, SERVER) && reaches(&beside, OTHER), "another sandbox");
    }
}

#[tokio::test]
async fn an_allowed_network_passes_on_every_port() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    apply(&network, &one, &strict(&["198.51.100.10"], &[])).await;
    for port in [53, 80, 443, 853] {
        fixture.outside.echo(SERVER, port);
        assert!(one.connects_to(SERVER, port).is_ok(), "{port}");
        assert!(one.echoes_datagram_from(one.address, SERVER, port, 6000), "{port}");
    }
}

#[tokio::test]
async fn an_allowed_network_opens_no_closed_address() {
    let fixture = Fixture::new();
    let mut settings = fixture.settings();
    settings.closed = vec!["198.51.100.11/32".parse().unwrap()];
    let (network, mut refusals) = HostNetwork::open(settings).unwrap();
    network.recover(&[]).await.unwrap();
    let (one, neighbour) = (plug(&network, 0), plug(&network, 1));
    neighbour.namespace.echo(neighbour.address, PORT);
    let closed = [PRIVATE, METADATA, HOST, BROADCAST, OTHER, neighbour.address, network.gateway()];
    let mut each: Vec<String> = closed.iter().map(Ipv4Addr::to_string).collect();
    each.push("0.0.0.0/0".to_owned());
    for default in [EgressDefault::Allow, EgressDefault::Deny] {
        let deny_networks = vec!["203.0.113.0/24".to_owned()];
        let policy = EgressPolicy { default, allow: Vec::new(), allow_networks: each.clone(), deny_networks };
        apply(&network, &one, &policy).await;
        assert!(reaches(&one, SERVER));
        for address in closed {
            assert!(!reaches(&one, address), "{default:?} {address}");
        }
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    while let Ok(refusal) = refusals.try_recv() {
        assert_eq!(refusal.reason, Reason::ClosedAddress, "{refusal:?}");
    }
}

#[tokio::test]
async fn refusals_by_a_list_have_their_own_reason() {
    let fixture = Fixture::new();
    let (network, mut refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    apply(&network, &one, &open(&[], &["198.51.100.10"])).await;
    assert!(!reaches(&one, SERVER));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut count = 0;
    while let Ok(refusal) = refusals.try_recv() {
        assert_eq!((refusal.reason, refusal.target.address), (Reason::DeniedAddress, Some(SERVER)));
        count += 1;
    }
    assert_eq!(count, 3, "TCP, UDP and ICMP");
}

#[tokio::test]
async fn a_change_cuts_what_it_denies_and_keeps_the_rest() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    let socket = one.namespace.run_inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    let datagram = |to| exchange(&socket, SocketAddrV4::new(to, PORT), 10).is_ok();
    for (before, after) in [
        (allow_all(), open(&[], &["198.51.100.10"])),
        (open(&[NETWORK], &["198.0.0.0/8"]), open(&["198.51.100.11"], &[NETWORK])),
        (allow_all(), strict(&["198.51.100.11"], &[])),
        (strict(&["198.51.0.0/16"], &[]), strict(&["198.51.100.11"], &[])),
        (strict(&["198.51.100.10", "198.51.100.11"], &[]), open(&[], &["198.51.100.10"])),
    ] {
        apply(&network, &one, &before).await;
        let [mut cut, mut kept] = [SERVER, OTHER].map(|to| one.connects_to(to, PORT).unwrap());
        assert!(datagram(SERVER) && datagram(OTHER));
        apply(&network, &one, &after).await;
        assert!(exchange_data(&mut cut).is_err(), "{before:?} {after:?}");
        exchange_data(&mut kept).unwrap();
        assert!(!datagram(SERVER) && datagram(OTHER), "{before:?} {after:?}");
        assert!(!reaches(&one, SERVER) && reaches(&one, OTHER), "{before:?} {after:?}");
    }
}

#[tokio::test]
async fn lists_survive_a_restart_and_end_with_the_sandbox() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let [denies, allows, dead] = [0, 1, 2].map(|slot| plug(&network, slot));
    let [denied, allowed] = [open(&[], &["198.51.100.10"]), strict(&["198.51.100.11"], &[])];
    apply(&network, &denies, &denied).await;
    apply(&network, &allows, &allowed).await;
    apply(&network, &dead, &allowed).await;
    let mut stream = allows.connects_to(OTHER, PORT).unwrap();
    let hold = |what: &str| {
        for one in [&denies, &allows] {
            assert!(!reaches(one, SERVER) && reaches(one, OTHER), "{what}");
        }
    };
    hold("before");
    network.close().await;
    drop(network);
    hold("without a daemon");
    let (network, _told) = fixture.open();
    network.recover(&[(denies.guest.clone(), denied), (allows.guest.clone(), allowed)]).await.unwrap();
    hold("after");
    exchange_data(&mut stream).unwrap();
    assert!(!dead.connects(OTHER) && !dead.echoes_datagram(OTHER));
    // The next sandbox at the same address inherits no list.
    network.unplug(&allows.guest).await.unwrap();
    let next = crate::fixture::Namespace::new("guest");
    plug_into(&network, &allows.guest, &next);
    let next = TestSandbox { guest: allows.guest.clone(), namespace: next, address: allows.address };
    apply(&network, &next, &only(&["example.com"])).await;
    assert!(!reaches(&next, OTHER));
    network.unplug(&denies.guest).await.unwrap();
    assert!(!lists().contains("elements"), "{}", lists());
}

/// The sets of the lists, with their elements.
fn lists() -> String {
    let text = run("nft", &["list", "ruleset"]);
    let is_list = |set: &&str| {
        ["listed", "allowed_networks", "denied_networks"].iter().any(|name| set.starts_with(name))
    };
    let sets = text.split("\tset ").filter(is_list);
    sets.map(|set| set.split("\n\t}").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn changed_lists_are_restored() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (denies, allows) = (plug(&network, 0), plug(&network, 1));
    apply(&network, &denies, &open(&[], &["198.51.100.10"])).await;
    apply(&network, &allows, &strict(&["198.51.100.11"], &[])).await;
    let text = run("nft", &["list", "ruleset"]);
    let table = text.lines().find_map(|line| line.strip_prefix("table inet ")).unwrap();
    let table = table.trim_end_matches(" {");
    let before = lists();
    let foreign = format!("{} . 198.51.0.0/16", allows.address);
    for harm in [
        format!("flush set inet {table} denied_networks"),
        format!("flush set inet {table} allowed_networks"),
        format!("flush set inet {table} listed"),
        // It overlaps the element that is removed.
        format!(
            "flush set inet {table} allowed_networks; add element inet {table} allowed_networks {{ {foreign} }}"
        ),
        format!("delete table inet {table}"),
    ] {
        run("nft", &[&harm]);
        let since = Instant::now();
        while lists() != before {
            assert!(since.elapsed() < Duration::from_secs(2), "{harm}: {:?}", lists());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for one in [&denies, &allows] {
            assert!(!reaches(one, SERVER) && reaches(one, OTHER), "{harm}");
        }
    }
}

/// A cluster's service address or a published port counts as what it is, not as what is behind it; and what is behind it must
/// be allowed too.
#[tokio::test]
async fn redirects_of_other_tables_do_not_open_denied_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    let (denied, allowed) = (open(&[], &["198.51.100.10"]), strict(&["198.51.100.11"], &[]));
    for (from, to, policy) in [(SERVER, OTHER, &denied), (OTHER, SERVER, &denied), (OTHER, SERVER, &allowed)]
    {
        run("nft", &["add table ip others; delete table ip others; add table ip others"]);
        run("nft", &["add chain ip others published { type nat hook prerouting priority dstnat ; }"]);
        run("nft", &[&format!("add rule ip others published ip daddr {from} dnat to {to}")]);
        apply(&network, &one, policy).await;
        assert!(!one.connects(from) && !one.echoes_datagram(from), "{from} {policy:?}");
    }
}
