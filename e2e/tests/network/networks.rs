//! Lists of networks in policies. Every path of a packet is tried: directly to an address, to an address that a name has, and
//! through the proxy.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use e2e::internet::{DnsAnswer, StreamMode};
use e2e::service::ServiceOptions;
use serde_json::{Value, json};

use crate::guest::{Guest, holds_echo, holds_stream, python};
use crate::{TestNet, shared_net};

const CUT_TIMEOUT: Duration = Duration::from_secs(4);
/// The port of the UDP echo servers.
const ECHO: u16 = 7;

fn curl(url: &str) -> String {
    format!("curl -sS -k --max-time 5 {url}/hello")
}

fn datagram(address: Ipv4Addr) -> String {
    python(&format!(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(1); s.connect(('{address}', {ECHO}))\n\
         s.send(b'x'); assert s.recv(9) == b'x'"
    ))
}

/// Addresses of TEST-NET-2 with echo servers; the web servers are on every address. Tests on one host use different ones.
fn addresses<const N: usize>(net: &TestNet, first: u8) -> [Ipv4Addr; N] {
    std::array::from_fn(|n| {
        let address = Ipv4Addr::new(198, 51, 100, first + u8::try_from(n).unwrap());
        net.internet.echo_at(address, ECHO).unwrap();
        address
    })
}

async fn reaches(guest: &Guest<'_>, address: Ipv4Addr) {
    guest.output(&curl(&format!("http://{address}"))).await;
    guest.output(&curl(&format!("https://{address}"))).await;
    guest.output(&datagram(address)).await;
}

/// Nothing of what is sent to the address arrives.
async fn is_refused(guest: &Guest<'_>, address: Ipv4Addr) {
    let before = guest.net.internet.packets().to(address).len();
    guest.fails(&curl(&format!("http://{address}"))).await;
    guest.fails(&curl(&format!("https://{address}"))).await;
    guest.fails(&datagram(address)).await;
    assert_eq!(guest.net.internet.packets().to(address).len(), before, "packets arrived at {address}");
}

#[tokio::test]
async fn denied_networks_are_refused_under_default_allow() {
    let net = shared_net().await;
    let [one, two] = addresses(&net, 20);
    let other = net.site("networks-other");
    net.internet.names().set("networks-one.web.example", DnsAnswer::A(vec![one], 60));
    let guest = Guest::new(&net, json!({ "denyNetworks": [one] })).await;
    reaches(&guest, two).await;
    is_refused(&guest, one).await;
    guest.wait_for_refusal(&["denied-address"], &one.to_string()).await;
    // An exception in a denied network.
    guest.patch(json!({ "denyNetworks": ["198.51.100.9/24"], "allowNetworks": [two] })).await;
    reaches(&guest, two).await;
    is_refused(&guest, one).await;
    guest.output(&curl(&format!("https://{}", other.name))).await;
    // A name gives no access to a denied address; under default allow `allow` has no effect.
    guest.patch(json!({ "allow": ["networks-one.web.example"] })).await;
    for url in ["http://networks-one.web.example", "https://networks-one.web.example"] {
        guest.fails(&curl(url)).await;
    }
    guest.patch(json!({ "denyNetworks": [] })).await;
    reaches(&guest, one).await;
}

#[tokio::test]
async fn allowed_networks_are_reached_under_default_deny() {
    let net = shared_net().await;
    let [one, two, three] = addresses(&net, 30);
    let unlisted = net.site("networks-unlisted");
    net.internet.names().set("networks-three.web.example", DnsAnswer::A(vec![three], 60));
    let guest = Guest::new(
        &net,
        json!({
            "default": "deny",
            "allow": ["networks-three.web.example"],
            "allowNetworks": ["198.51.100.30/31"],
            "denyNetworks": ["198.51.100.0/24"],
        }),
    )
    .await;
    for address in [one, two] {
        reaches(&guest, address).await;
    }
    is_refused(&guest, three).await;
    // A listed name stays allowed, whatever network its address is in.
    for scheme in ["http", "https"] {
        guest.output(&curl(&format!("{scheme}://networks-three.web.example"))).await;
    }
    // The address is allowed, so the name does not matter; the name itself is not resolved.
    let resolved = format!("--resolve {0}:443:{one} https://{0}", unlisted.name);
    guest.output(&curl(&resolved)).await;
    guest.fails(&curl(&format!("https://{}", unlisted.name))).await;
    guest.wait_for_refusal(&["not-allowed"], &unlisted.name).await;
    assert!(net.internet.packets().to(unlisted.address).is_empty());
}

#[tokio::test]
async fn no_list_opens_a_closed_address() {
    let net = shared_net().await;
    let everything = json!(["0.0.0.0/0", "169.254.169.254", "10.0.0.0/8", "192.168.77.1", "192.0.2.1"]);
    for default in ["allow", "deny"] {
        let lists = json!({
            "default": default, "allowNetworks": everything, "denyNetworks": ["203.0.113.0/24"]
        });
        let guest = Guest::new(&net, lists).await;
        for host in ["169.254.169.254", "10.99.5.5", "192.168.77.20", "192.168.77.1", "192.0.2.1"] {
            guest.fails(&format!("curl -sS --max-time 2 http://{host}/latest/meta-data/")).await;
        }
        guest.output(&curl(&format!("http://{}", net.site(&format!("networks-{default}")).address))).await;
        guest.wait_for_refusal(&["closed-address"], "169.254.169.254").await;
    }
    for address in ["169.254.169.254", "10.99.5.5", "192.168.77.20"] {
        net.assert_no_packets_to(address.parse::<Ipv4Addr>().unwrap());
    }
}

#[tokio::test]
async fn a_change_of_the_lists_cuts_connections() {
    let net = shared_net().await;
    let [removed, kept] = addresses(&net, 40);
    for address in [removed, kept] {
        net.internet.stream_at(address, 8000, StreamMode::Endless).unwrap();
    }
    net.internet.names().set("networks-cut.web.example", DnsAnswer::A(vec![removed], 60));
    let both = json!(["198.51.100.40", "198.51.100.41"]);
    let named = json!(["networks-cut.web.example"]);
    // The last one goes through the proxy, by its name.
    for (before, after, held) in [
        (json!({}), json!({ "denyNetworks": [removed] }), removed.to_string()),
        (
            json!({ "default": "deny", "allowNetworks": both }),
            json!({ "allowNetworks": [kept] }),
            removed.to_string(),
        ),
        (
            json!({ "default": "deny", "allow": named, "allowNetworks": [kept] }),
            json!({ "default": "allow", "denyNetworks": [removed] }),
            "networks-cut.web.example".to_owned(),
        ),
    ] {
        let guest = Guest::new(&net, before.clone()).await;
        let mut cut = vec![guest.start(&holds_stream(&held, 8000)).await];
        if held == removed.to_string() {
            cut.push(guest.start(&holds_echo(&removed.to_string())).await);
        }
        let mut stay = vec![
            guest.start(&holds_stream(&kept.to_string(), 8000)).await,
            guest.start(&holds_echo(&kept.to_string())).await,
        ];
        guest.patch(after.clone()).await;
        let begin = Instant::now();
        for stream in &mut cut {
            let result = stream.next().await.unwrap().unwrap().data;
            assert!(result == "cut" || result == "closed", "{before} {after}: {result}");
        }
        assert!(begin.elapsed() < CUT_TIMEOUT, "cut after {:?}", begin.elapsed());
        for stream in &mut stay {
            let next = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
            assert!(next.is_err(), "{before} {after}: an allowed connection was cut: {next:?}");
        }
        is_refused(&guest, removed).await;
        guest.terminate().await;
    }
}

#[tokio::test]
async fn lists_survive_a_restart_and_a_pause() {
    let net = TestNet::new(ServiceOptions::default()).await;
    let [one, two] = addresses(&net, 50);
    let policies = [
        json!({ "allow": [], "default": "allow", "denyNetworks": [one.to_string()] }),
        json!({ "allow": [], "default": "deny", "allowNetworks": ["198.51.100.51", "203.0.113.0/24"] }),
    ];
    let client = net.service.account().await.unwrap();
    let mut ids = Vec::new();
    for policy in &policies {
        let guest = Guest::of(&net, client.clone(), policy.clone()).await;
        reaches(&guest, two).await;
        is_refused(&guest, one).await;
        ids.push(guest.id);
    }
    let works = async || {
        for (id, policy) in ids.iter().zip(&policies) {
            let guest = Guest { net: &net, client: client.with_own_connections(), id: id.clone() };
            let shown: Value = guest.client.get(&guest.path("network")).await.unwrap().is(200).unwrap();
            assert_eq!(shown["egress"], *policy);
            reaches(&guest, two).await;
            is_refused(&guest, one).await;
        }
    };
    net.service.restart().await.unwrap();
    works().await;
    net.service.kill().unwrap();
    net.service.start_process().await.unwrap();
    works().await;
    for id in &ids {
        let guest = Guest { net: &net, client: client.with_own_connections(), id: id.clone() };
        guest.post_empty("pause").await;
        guest.post_empty("resume").await;
    }
    works().await;
}
