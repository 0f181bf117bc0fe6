//! Restarts, restoration of the rules, and complete removal.

use std::time::{Duration, Instant};

use net::{HostNetwork, HostSettings, Ipv4Net, Network, Pool};

use crate::fixture::{Fixture, OTHER, PORT, SERVER, allow_all, exchange_data, only, plug, run};

const LASTING: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_restart_changes_no_rule() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (open, strict, dead) = (plug(&network, 0), plug(&network, 1), plug(&network, 2));
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.apply(&strict.guest, &only(&["example.com"])).await.unwrap();
    network.apply(&dead.guest, &allow_all()).await.unwrap();
    network.parts().kernel.open(strict.address, &[SERVER], LASTING).await.unwrap();
    let mut stream = open.connects_to(SERVER, PORT).unwrap();
    network.close().await;
    drop(network);
    exchange_data(&mut stream).unwrap();
    assert!(strict.echoes_datagram(SERVER) && !strict.echoes_datagram(OTHER), "without a daemon");
    assert!(!strict.connects(SERVER), "without a proxy connections are closed");
    let (network, _told) = fixture.open();
    exchange_data(&mut stream).unwrap();
    let living = [(open.guest.clone(), allow_all()), (strict.guest.clone(), only(&["example.com"]))];
    network.recover(&living).await.unwrap();
    exchange_data(&mut stream).unwrap();
    assert!(strict.echoes_datagram(SERVER) && !strict.echoes_datagram(OTHER));
    let guest = network.parts().registry.find(strict.address).unwrap();
    assert!(guest.may_reach(SERVER, Instant::now()), "connections too");
    assert!(!guest.may_reach(OTHER, Instant::now()));
    assert!(!dead.echoes_datagram(SERVER), "a removed sandbox has no network");
    assert!(!network.is_plugged(&dead.guest).await);
}

#[tokio::test]
async fn flushed_rules_are_restored() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (open, strict) = (plug(&network, 0), plug(&network, 1));
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.apply(&strict.guest, &only(&["example.com"])).await.unwrap();
    network.parts().kernel.open(strict.address, &[SERVER], LASTING).await.unwrap();
    let before = rules();
    for harm in ["flush ruleset", "delete table inet TABLE", "flush chain inet TABLE forward"] {
        let table = before.lines().find_map(|line| line.strip_prefix("table inet ")).unwrap();
        let harm = harm.replace("TABLE", table.trim_end_matches(" {"));
        run("nft", &harm.split(' ').collect::<Vec<_>>());
        let since = Instant::now();
        while rules() != before {
            assert!(since.elapsed() < Duration::from_secs(2), "{harm}: {}", rules());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        eprintln!("back {:?} after {harm}", since.elapsed());
        // The elements follow the rules.
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(open.echoes_datagram(SERVER) && open.connects(SERVER), "{harm}");
        assert!(
            strict.echoes_datagram(SERVER) && !strict.echoes_datagram(OTHER) && !strict.connects(SERVER),
            "{harm}"
        );
    }
}

#[tokio::test]
async fn changed_elements_are_restored() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (open, strict) = (plug(&network, 0), plug(&network, 1));
    network.apply(&open.guest, &allow_all()).await.unwrap();
    network.apply(&strict.guest, &only(&["example.com"])).await.unwrap();
    network.parts().kernel.open(strict.address, &[SERVER], LASTING).await.unwrap();
    let rules = rules();
    let table =
        rules.lines().find_map(|line| line.strip_prefix("table inet ")).unwrap().trim_end_matches(" {");
    let held = |set: &str| {
        let text = run("nft", &["list", "set", "inet", table, set]);
        // Without the remaining timeouts.
        let words = text.split_whitespace().map(|word| word.trim_end_matches(','));
        words
            .filter(|word| !(word.starts_with(|first: char| first.is_ascii_digit()) && word.ends_with('s')))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let link = "{ \"nobody\" . 10.0.0.1 }".to_owned();
    let mut harms: Vec<(&str, Vec<String>)> = ["closed", "guests", "open", "strict", "learnt"]
        .into_iter()
        .map(|set| (set, vec!["flush".into(), "set".into(), "inet".into(), table.into(), set.into()]))
        .collect();
    harms.push((
        "open",
        vec!["add".into(), "element".into(), "inet".into(), table.into(), "open".into(), link],
    ));
    for (set, harm) in harms {
        let before = held(set);
        run("nft", &harm.iter().map(String::as_str).collect::<Vec<_>>());
        let since = Instant::now();
        while held(set) != before {
            assert!(since.elapsed() < Duration::from_secs(5), "{harm:?}: {:?} not {before:?}", held(set));
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(
            open.echoes_datagram(SERVER) && strict.echoes_datagram(SERVER) && !strict.echoes_datagram(OTHER),
            "{harm:?}"
        );
    }
}

/// All rules, without the elements of sets.
fn rules() -> String {
    run("nft", &["-t", "list", "ruleset"])
}

#[tokio::test]
async fn retire_removes_everything() {
    let fixture = Fixture::new();
    let census = || {
        [
            run("ip", &["-o", "link"]).lines().count().to_string(),
            run("ip", &["route", "show", "table", "all"]),
            run("nft", &["list", "ruleset"]),
            run("ip", &["neigh"]).lines().filter(|line| line.contains("PERMANENT")).collect(),
        ]
    };
    let before = census();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let (one, two) = (plug(&network, 0), plug(&network, 1));
    for guest in [&one, &two] {
        network.apply(&guest.guest, &allow_all()).await.unwrap();
        assert!(guest.echoes_datagram(SERVER));
    }
    network.retire().await.unwrap();
    assert!(one.echoes_datagram(SERVER), "not while a sandbox is running");
    network.unplug(&one.guest).await.unwrap();
    assert!(!one.echoes_datagram(SERVER) && two.echoes_datagram(SERVER));
    let since = Instant::now();
    while network.is_plugged(&one.guest).await {
        assert!(since.elapsed() < Duration::from_secs(3), "the link is removed although the namespace stays");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let known = run("conntrack", &["-L", "-s", &one.address.to_string()]);
    assert!(known.trim().is_empty(), "{known}");
    assert!(!run("conntrack", &["-L", "-s", &two.address.to_string()]).trim().is_empty());
    network.unplug(&two.guest).await.unwrap();
    network.unplug(&two.guest).await.unwrap();
    network.retire().await.unwrap();
    assert_eq!(census(), before);
    assert!(std::fs::read_dir(fixture.data.path()).unwrap().next().is_none());
}

#[tokio::test]
async fn a_reconnected_sandbox_keeps_its_policy() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let first = plug(&network, 7);
    network.apply(&first.guest, &allow_all()).await.unwrap();
    assert!(first.echoes_datagram(SERVER));
    let second = plug(&network, 7);
    assert_eq!(first.address, second.address);
    assert!(second.echoes_datagram(SERVER));
    assert!(!first.echoes_datagram(SERVER));
}

#[tokio::test]
async fn a_block_that_overlaps_a_route_is_not_chosen() {
    let fixture = Fixture::new();
    fixture.host.ip("route add 10.64.0.0/11 via 203.0.113.2");
    fixture.host.ip("route add 198.18.4.0/24 dev up0");
    let listed = |text: &str| HostSettings { pool: Pool::Block(text.parse().unwrap()), ..fixture.settings() };
    let refused = HostNetwork::open(listed("198.18.0.0/16")).err().unwrap().to_string();
    assert!(refused.contains("198.18.4.0/24") && refused.contains("up0"), "{refused}");
    let small = HostNetwork::open(listed("198.18.5.0/24")).err().unwrap().to_string();
    assert!(small.contains("too small"), "{small}");
    let (network, _told) = fixture.open();
    let half: Ipv4Net = "10.96.0.0/11".parse().unwrap();
    assert!(half.contains(&network.pool()), "{}", network.pool());
    let pool = network.pool();
    drop(network);
    let (again, _told) = fixture.open();
    assert_eq!(again.pool(), pool, "the block is stored");
    drop(again);
    let (listed, _told) = HostNetwork::open(listed("198.18.8.0/22")).unwrap();
    assert_eq!(listed.pool().to_string(), "198.18.8.0/22");
    listed.recover(&[]).await.unwrap();
    let one = plug(&listed, 0);
    listed.apply(&one.guest, &allow_all()).await.unwrap();
    assert!(one.echoes_datagram(SERVER));
    assert!(!run("ip", &["route"]).contains("10.96."), "the old block is released");
}

#[test]
fn daemons_that_start_at_once_take_different_blocks() {
    let fixture = Fixture::new();
    let dirs: Vec<_> = (0..8).map(|_| tempfile::tempdir().unwrap()).collect();
    let pools: Vec<String> = std::thread::scope(|scope| {
        let starting: Vec<_> = dirs
            .iter()
            .map(|dir| {
                let settings = HostSettings { data_dir: dir.path().to_owned(), ..fixture.settings() };
                scope.spawn(|| HostNetwork::open(settings).unwrap().0.pool().to_string())
            })
            .collect();
        starting.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let different: std::collections::HashSet<_> = pools.iter().collect();
    assert_eq!(different.len(), pools.len(), "{pools:?}");
}
