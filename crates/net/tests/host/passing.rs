//! Traffic that passes, and policy changes that stop it.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

use net::Network;

use crate::fixture::{Fixture, OTHER, PORT, SERVER, allow_all, exchange, exchange_data, only, plug};

const LASTING: Duration = Duration::from_secs(60);

#[tokio::test]
async fn default_allow_passes_public_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    assert!(network.is_plugged(&one.guest).await);
    assert!(!one.echoes_datagram(SERVER), "nothing passes before there is a policy");
    assert!(!one.connects(SERVER));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    assert!(one.echoes_datagram(SERVER));
    assert!(one.connects(SERVER));
    assert!(one.echoes_datagram_from(one.address, SERVER, PORT, 6000), "larger than the uplink's MTU");
    assert!(one.pings(SERVER));
    let usage = network.usage(&one.guest).await;
    assert!(usage.bytes_out > 6000 && usage.bytes_in > 6000, "{usage:?}");
}

#[tokio::test]
async fn default_deny_passes_datagrams_to_learnt_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 3);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    let kernel = &network.parts().kernel;
    assert!(!one.echoes_datagram(SERVER) && !one.pings(SERVER));
    kernel.open(one.address, &[SERVER, SERVER], LASTING).await.unwrap();
    assert!(one.echoes_datagram(SERVER) && one.pings(SERVER));
    assert!(one.echoes_datagram_from(one.address, SERVER, PORT, 1400), "one packet");
    assert!(!one.echoes_datagram(OTHER));
    assert!(!one.connects(SERVER), "TCP goes to the proxy, also to learnt addresses");
    kernel.close(one.address, &[SERVER, OTHER]).await.unwrap();
    assert!(!one.echoes_datagram(SERVER) && !one.pings(SERVER));
}

#[tokio::test]
async fn learnt_addresses_expire() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    // The firewall adds fifteen seconds.
    network.parts().kernel.open(one.address, &[SERVER], Duration::ZERO).await.unwrap();
    assert!(one.echoes_datagram(SERVER));
    let left = crate::fixture::run("nft", &["list", "ruleset"]);
    assert!(left.contains("timeout 15s"), "{left}");
}

#[tokio::test]
async fn closing_an_address_cuts_its_flows() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    let kernel = &network.parts().kernel;
    kernel.open(one.address, &[SERVER], LASTING).await.unwrap();
    let socket = one.namespace.run_inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap());
    let to = SocketAddrV4::new(SERVER, PORT);
    exchange(&socket, to, 10).unwrap();
    kernel.close(one.address, &[SERVER]).await.unwrap();
    assert!(exchange(&socket, to, 10).is_err(), "the same flow");
    kernel.open(one.address, &[SERVER], LASTING).await.unwrap();
    exchange(&socket, to, 10).unwrap();
}

#[tokio::test]
async fn a_policy_change_cuts_or_opens_connections() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    let beside = plug(&network, 1);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    network.apply(&beside.guest, &allow_all()).await.unwrap();
    let mut stream = one.connects_to(SERVER, PORT).unwrap();
    let mut other = beside.connects_to(SERVER, PORT).unwrap();
    exchange_data(&mut stream).unwrap();
    network.apply(&one.guest, &only(&["example.com"])).await.unwrap();
    assert!(exchange_data(&mut stream).is_err());
    exchange_data(&mut other).unwrap();
    assert!(!one.echoes_datagram(SERVER) && !one.connects(SERVER));
    network.apply(&one.guest, &allow_all()).await.unwrap();
    assert!(one.echoes_datagram(SERVER) && one.connects(SERVER));
}

#[tokio::test]
async fn removing_a_name_closes_its_addresses() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let one = plug(&network, 0);
    network.apply(&one.guest, &only(&["a.example", "b.example"])).await.unwrap();
    let guest = network.parts().registry.find(one.address).unwrap();
    for (name, address) in [("a.example", SERVER), ("b.example", OTHER)] {
        guest.learn(name, &[address], LASTING, Instant::now());
        network.parts().kernel.open(one.address, &[address], LASTING).await.unwrap();
    }
    assert!(one.echoes_datagram(SERVER) && one.echoes_datagram(OTHER));
    network.apply(&one.guest, &only(&["b.example"])).await.unwrap();
    assert!(!one.echoes_datagram(SERVER));
    assert!(one.echoes_datagram(OTHER));
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
        network.parts().kernel.open(one.address, &many(part * 1024), LASTING).await.unwrap();
    }
    let refused = network.parts().kernel.open(one.address, &[SERVER], LASTING).await;
    assert!(refused.is_err());
    assert!(!one.echoes_datagram(SERVER));
    network.parts().kernel.close(one.address, &many(0)).await.unwrap();
    network.parts().kernel.open(one.address, &[SERVER], LASTING).await.unwrap();
    assert!(one.echoes_datagram(SERVER));
}
