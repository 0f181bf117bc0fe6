//! Forged names, and addresses without a name: refused to a sandbox whose policy lists one host.

use crate::guest::Guest;
use crate::{TestNet, shared_net};
use e2e::internet::Site;

/// One listed host, and one that is not.
struct Forger<'a> {
    guest: Guest<'a>,
    listed: Site,
    other: Site,
}

impl<'a> Forger<'a> {
    async fn new(net: &'a TestNet, name: &str) -> Self {
        let (listed, other) = (net.site(&format!("{name}-listed")), net.site(&format!("{name}-other")));
        let guest = net.strict(&[&listed.name]).await;
        // The address is learnt, so that this is not the reason of the refusal.
        assert!(
            guest
                .output(&format!("curl -sS --max-time 20 http://{}/hello", listed.name))
                .await
                .contains("hello")
        );
        Self { guest, listed, other }
    }

    /// Runs a Python program that must not receive a page.
    async fn assert_gets_nothing(&self, program: &str) {
        let result = self.guest.python(program).await;
        assert!(!result.contains("hello host") && !result.contains("200"), "{program}: {result}");
        self.guest.net.assert_no_packets_to(self.other.address);
    }
}

#[tokio::test]
async fn an_address_without_a_name_is_refused() {
    let net = shared_net().await;
    let Forger { guest, other, .. } = &Forger::new(&net, "bare").await;
    let address = other.address;
    for url in [
        format!("http://{address}/hello"),
        format!("-k https://{address}/hello"),
        format!("http://{address}:8080/"),
    ] {
        guest.fails(&format!("curl -sS --max-time 10 {url}")).await;
    }
    guest.wait_for_refusal(&["no-name", "not-allowed", "unknown-address"], &address.to_string()).await;
    net.assert_no_packets_to(address);
}

/// The client names a listed host and connects to another.
#[tokio::test]
async fn a_listed_name_for_another_address_is_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "borrowed").await;
    let Forger { guest, listed, other } = &forger;
    for url in ["http", "https"] {
        let port = if url == "http" { 80 } else { 443 };
        let command = format!(
            "curl -sS -k --max-time 10 --resolve {0}:{port}:{1} {url}://{0}/hello",
            listed.name, other.address
        );
        let result = guest.run(&command).await;
        let page = result["stdout"].as_str().unwrap();
        // Refused, or connected to the named host: never to the address.
        assert!(!page.contains(&format!("at={}", other.address)), "{result}");
    }
    guest.wait_for_refusal(&["wrong-address"], &listed.name).await;
    net.assert_no_packets_to(other.address);
    let s_client = format!(
        "openssl s_client -connect {}:443 -servername {} </dev/null 2>&1",
        other.address, listed.name
    );
    guest.fails(&s_client).await;
    net.assert_no_packets_to(other.address);
}

/// The name of another host at the address of a listed one.
#[tokio::test]
async fn an_unlisted_name_at_the_address_of_a_listed_host_is_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "shared").await;
    let Forger { guest, listed, other } = &forger;
    let before = net.internet.web_log();
    let tls = format!(
        "openssl s_client -connect {}:443 -servername {} </dev/null 2>&1",
        listed.address, other.name
    );
    guest.fails(&tls).await;
    guest.wait_for_refusal(&["not-allowed"], &other.name).await;
    let http = format!("curl -sS --max-time 10 -H 'Host: {}' http://{}/hello", other.name, listed.name);
    guest.fails(&http).await;
    let after = net.internet.web_log();
    assert!(!after[before.len()..].contains(&format!("host={}", other.name)), "{after}");
    net.assert_no_packets_to(other.address);
}

#[tokio::test]
async fn a_request_without_a_name_at_a_listed_address_is_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "nameless").await;
    let Forger { guest, listed, .. } = &forger;
    let tls = format!("openssl s_client -connect {}:443 -noservername </dev/null 2>&1", listed.address);
    guest.fails(&tls).await;
    guest.wait_for_refusal(&["no-name"], &listed.address.to_string()).await;
    for head in ["GET /hello HTTP/1.1", "GET /hello HTTP/1.0"] {
        forger
            .assert_gets_nothing(&format!(
                "s = tcp('{}', 80); s.send(b'{head}\\r\\nAccept: */*\\r\\n\\r\\n'); print(all_of(s))",
                listed.address
            ))
            .await;
    }
}

/// Requests that name two hosts; servers and proxies may differ in which one they use.
#[tokio::test]
async fn requests_that_name_two_hosts_are_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "two").await;
    let Forger { listed, other, .. } = &forger;
    let (good, evil) = (&listed.name, &other.name);
    for head in [
        format!("GET /hello HTTP/1.1\\r\\nHost: {good}\\r\\nHost: {evil}"),
        format!("GET /hello HTTP/1.1\\r\\nHost: {evil}\\r\\nHost: {good}"),
        format!("GET http://{evil}/hello HTTP/1.1\\r\\nHost: {good}"),
        format!("GET http://{good}/hello HTTP/1.1\\r\\nHost: {evil}"),
        format!("GET /hello HTTP/1.1\\r\\nHost: {good}\\r\\n Host: {evil}"),
        format!("GET /hello HTTP/1.1\\r\\nHost : {evil}\\r\\nHost: {good}"),
        format!("GET /hello HTTP/1.1\\r\\nHost: {good}, {evil}"),
        format!("GET /hello HTTP/1.1\\r\\nHost: {good}\\x00.{evil}"),
        format!("GET /hello HTTP/1.1\\r\\nHost: {good}@{evil}"),
        format!("GET /hello HTTP/1.1\\r\\nHost: {evil}/{good}"),
        format!("CONNECT {evil}:443 HTTP/1.1\\r\\nHost: {good}"),
        format!("CONNECT {evil}:443 HTTP/1.1\\r\\nHost: {evil}"),
    ] {
        let program = format!("s = tcp('{good}', 80); s.send(b'{head}\\r\\n\\r\\n'); print(all_of(s))");
        let result = forger.guest.python(&program).await;
        assert!(!result.contains(&format!("host={evil}")), "{head}: {result}");
        net.assert_no_packets_to(other.address);
    }
}

#[tokio::test]
async fn an_unlisted_name_in_a_later_request_is_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "later").await;
    let Forger { guest, listed, other } = &forger;
    // After the answer to the first request, and pipelined.
    for wait in ["s.recv(9999)", "pass"] {
        let program = format!(
            "s = tcp('{0}', 80); s.send(request('{0}', end='keep-alive'))\n{wait}\n\
             s.send(request('{1}', '/hello?stolen')); print(all_of(s))",
            listed.name, other.name
        );
        let result = guest.python(&program).await;
        assert!(!result.contains(&format!("host={}", other.name)), "{wait}: {result}");
    }
    guest.wait_for_refusal(&["name-changed"], &other.name).await;
    assert!(!net.internet.web_log().contains(&format!("host={} sni= GET /hello?stolen", other.name)));
    // A body that looks like a request is not one.
    let program = format!(
        "body = request('{1}'); s = tcp('{0}', 80)\n\
         s.send(f'POST /upload HTTP/1.1\\r\\nHost: {0}\\r\\nContent-Length: {{len(body)}}\\r\\nConnection: close\\r\\n\\r\\n'.encode() + body)\n\
         print(all_of(s))",
        listed.name, other.name
    );
    assert!(guest.python(&program).await.contains("taken"));
    net.assert_no_packets_to(other.address);
}

/// Request smuggling: two lengths, a length and chunks, invalid chunks.
#[tokio::test]
async fn smuggled_requests_are_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "smuggled").await;
    let Forger { listed, other, .. } = &forger;
    for head in [
        "Content-Length: 4\\r\\nTransfer-Encoding: chunked",
        "Content-Length: 0\\r\\nContent-Length: 4",
        "Transfer-Encoding: chunked\\r\\nTransfer-Encoding: identity",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding : chunked",
        "Content-Length: +0",
    ] {
        let program = format!(
            "s = tcp('{0}', 80)\n\
             s.send(b'POST /upload HTTP/1.1\\r\\nHost: {0}\\r\\n{head}\\r\\n\\r\\n0\\r\\n\\r\\n' + request('{1}', '/hello?hidden'))\n\
             print(all_of(s))",
            listed.name, other.name
        );
        let result = forger.guest.python(&program).await;
        assert!(!result.contains(&format!("host={}", other.name)), "{head}: {result}");
    }
    assert!(!net.internet.web_log().contains(&format!("host={} sni= GET /hello?hidden", other.name)));
}

/// Names inside TLS are invisible (documented); those in HTTP/2 without TLS are checked.
#[tokio::test]
async fn unlisted_names_in_cleartext_http2_are_refused() {
    let net = shared_net().await;
    let forger = Forger::new(&net, "prior").await;
    let Forger { guest, listed, other } = &forger;
    guest
        .fails(&format!(
            "curl -sS --max-time 10 --http2-prior-knowledge -H 'Host: {}' http://{}/hello",
            other.name, listed.name
        ))
        .await;
    guest
        .fails(&format!("curl -sS --max-time 10 --http2-prior-knowledge http://{}/hello", other.address))
        .await;
    net.assert_no_packets_to(other.address);
}
