//! Traffic that passes, and policy changes that stop it.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use net::Network;

use crate::fixture::{Fixture, OTHER, PORT, SERVER, allow_all, exchange, only, plug, say};

const LASTING: Duration = Duration::from_secs(60);

#[tokio::test]
async fn an_open_policy_lets_public_addresses_through() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    assert!(network.is_plugged(&one.guest).await);
    assert!(!one.talks(SERVER), "nothing passes before there is a policy");
    assert!(!one.connects(SERVER));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    assert!(one.talks(SERVER));
    assert!(one.connects(SERVER));
    assert!(one.talks_from(one.address, SERVER, PORT, 6000), "larger than the uplink's MTU");
    assert!(one.pings(SERVER));
    let usage = network.usage(&one.guest).await;
    assert!(usage.bytes_out > 6000 && usage.bytes_in > 6000, "{usage:?}");
}

#[tokio::test]
async fn a_list_of_names_lets_datagrams_through_to_what_was_learnt() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 3);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    let gate = &network.parts().gate;
    assert!(!one.talks(SERVER) && !one.pings(SERVER));
    gate.open(one.address, &[SERVER, SERVER], LASTING).await.unwrap();
    assert!(one.talks(SERVER) && one.pings(SERVER));
    assert!(one.talks_from(one.address, SERVER, PORT, 1400), "one packet");
    assert!(!one.talks(OTHER));
    assert!(!one.connects(SERVER), "a connection is the proxy's, whatever was learnt");
    gate.close(one.address, &[SERVER, OTHER]).await.unwrap();
    assert!(!one.talks(SERVER) && !one.pings(SERVER));
}

#[tokio::test]
async fn what_was_learnt_ends_by_itself() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    // The firewall adds fifteen seconds.
    network.parts().gate.open(one.address, &[SERVER], Duration::ZERO).await.unwrap();
    assert!(one.talks(SERVER));
    let left = crate::fixture::run("nft", &["list", "ruleset"]);
    assert!(left.contains("timeout 15s"), "{left}");
}

#[tokio::test]
async fn forgetting_cuts_what_is_under_way() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    let gate = &network.parts().gate;
    gate.open(one.address, &[SERVER], LASTING).await.unwrap();
    let socket = one.namespace.inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    let to = SocketAddrV4::new(SERVER, PORT);
    exchange(&socket, to, 10).unwrap();
    gate.close(one.address, &[SERVER]).await.unwrap();
    assert!(exchange(&socket, to, 10).is_err(), "the same flow");
    gate.open(one.address, &[SERVER], LASTING).await.unwrap();
    exchange(&socket, to, 10).unwrap();
}

#[tokio::test]
async fn a_closer_policy_cuts_what_an_open_one_let_through_and_the_other_way_round_opens() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    let beside = plug(&network, 1);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&beside.guest, &allow_all()).await.unwrap();
    let mut stream = one.connects_to(SERVER, PORT).unwrap();
    let mut other = beside.connects_to(SERVER, PORT).unwrap();
    say(&mut stream).unwrap();
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    assert!(say(&mut stream).is_err());
    say(&mut other).unwrap();
    assert!(!one.talks(SERVER) && !one.connects(SERVER));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    assert!(one.talks(SERVER) && one.connects(SERVER));
}

#[tokio::test]
async fn a_name_that_is_taken_off_the_list_closes_its_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["a.example", "b.example"])).await.unwrap();
    let guest = network.parts().registry.find(one.address).unwrap();
    for (name, address) in [("a.example", SERVER), ("b.example", OTHER)] {
        guest.learn(name, &[address], LASTING, Instant::now());
        network.parts().gate.open(one.address, &[address], LASTING).await.unwrap();
    }
    assert!(one.talks(SERVER) && one.talks(OTHER));
    network.apply(&one.guest, &only(&["b.example"])).await.unwrap();
    assert!(!one.talks(SERVER));
    assert!(one.talks(OTHER));
}

#[tokio::test]
async fn too_many_addresses_are_not_learnt() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    let many = |from: u32| (from..from + 1024).map(|n| Ipv4Addr::from(0x0800_0000 + n)).collect::<Vec<_>>();
    for part in 0..4 {
        network.parts().gate.open(one.address, &many(part * 1024), LASTING).await.unwrap();
    }
    let refused = network.parts().gate.open(one.address, &[SERVER], LASTING).await;
    assert!(refused.is_err());
    assert!(!one.talks(SERVER));
    network.parts().gate.close(one.address, &many(0)).await.unwrap();
    network.parts().gate.open(one.address, &[SERVER], LASTING).await.unwrap();
    assert!(one.talks(SERVER));
}
