//! Forged names, and addresses without a name: refused to a sandbox whose policy lists one host.

use crate::guest::Guest;
use crate::{World, world};
use e2e::internet::Site;

/// One listed host, and one that is not.
struct Forger<'a> {
    guest: Guest<'a>,
    listed: Site,
    other: Site,
}

impl<'a> Forger<'a> {
    async fn new(world: &'a World, name: &str) -> Self {
        let (listed, other) = (world.site(&format!("{name}-listed")), world.site(&format!("{name}-other")));
        let guest = world.strict(&[&listed.name]).await;
        // The address is learnt, so that this is not the reason of the refusal.
        assert!(
            guest
                .output(&format!("curl -sS --max-time 20 http://{}/hello", listed.name))
                .await
                .contains("hello")
        );
        Self { guest, listed, other }
    }

    /// A Python program must not receive a page of any server.
    async fn gets_nothing(&self, program: &str) {
        let said = self.guest.python(program).await;
        assert!(!said.contains("hello host") && !said.contains("200"), "{program}: {said}");
        self.guest.world.saw_nothing_at(self.other.address);
    }
}

#[tokio::test]
async fn an_address_without_a_name() {
    let world = world().await;
    let Forger { guest, other, .. } = &Forger::new(&world, "bare").await;
    let address = other.address;
    for url in [
        format!("http://{address}/hello"),
        format!("-k https://{address}/hello"),
        format!("http://{address}:8080/"),
    ] {
        guest.fails(&format!("curl -sS --max-time 10 {url}")).await;
    }
    guest.was_told(&["no-name", "not-allowed", "unknown-address"], &address.to_string()).await;
    world.saw_nothing_at(address);
}

/// The client names a listed host and connects to another.
#[tokio::test]
async fn the_name_of_a_listed_host_for_another_address() {
    let world = world().await;
    let forger = Forger::new(&world, "borrowed").await;
    let Forger { guest, listed, other } = &forger;
    for url in ["http", "https"] {
        let port = if url == "http" { 80 } else { 443 };
        let command = format!(
            "curl -sS -k --max-time 10 --resolve {0}:{port}:{1} {url}://{0}/hello",
            listed.name, other.address
        );
        let said = guest.run(&command).await;
        let page = said["stdout"].as_str().unwrap();
        // Refused, or connected to the named host: never to the address.
        assert!(!page.contains(&format!("at={}", other.address)), "{said}");
    }
    guest.was_told(&["wrong-address"], &listed.name).await;
    world.saw_nothing_at(other.address);
    let s_client = format!(
        "openssl s_client -connect {}:443 -servername {} </dev/null 2>&1",
        other.address, listed.name
    );
    guest.fails(&s_client).await;
    world.saw_nothing_at(other.address);
}

/// The name of another host at the address of a listed one.
#[tokio::test]
async fn another_name_at_the_address_of_a_listed_host() {
    let world = world().await;
    let forger = Forger::new(&world, "shared").await;
    let Forger { guest, listed, other } = &forger;
    let before = world.internet.web_log();
    let tls = format!(
        "openssl s_client -connect {}:443 -servername {} </dev/null 2>&1",
        listed.address, other.name
    );
    guest.fails(&tls).await;
    guest.was_told(&["not-allowed"], &other.name).await;
    let http = format!("curl -sS --max-time 10 -H 'Host: {}' http://{}/hello", other.name, listed.name);
    guest.fails(&http).await;
    let after = world.internet.web_log();
    assert!(!after[before.len()..].contains(&format!("host={}", other.name)), "{after}");
    world.saw_nothing_at(other.address);
}

#[tokio::test]
async fn no_name_at_the_address_of_a_listed_host() {
    let world = world().await;
    let forger = Forger::new(&world, "nameless").await;
    let Forger { guest, listed, .. } = &forger;
    let tls = format!("openssl s_client -connect {}:443 -noservername </dev/null 2>&1", listed.address);
    guest.fails(&tls).await;
    guest.was_told(&["no-name"], &listed.address.to_string()).await;
    for head in ["GET /hello HTTP/1.1", "GET /hello HTTP/1.0"] {
        forger
            .gets_nothing(&format!(
                "s = tcp('{}', 80); s.send(b'{head}\\r\\nAccept: */*\\r\\n\\r\\n'); print(all_of(s))",
                listed.address
            ))
            .await;
    }
}

/// Requests that name two hosts, of which servers and proxies may use different ones.
#[tokio::test]
async fn two_names_in_one_request() {
    let world = world().await;
    let forger = Forger::new(&world, "two").await;
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
        let said = forger.guest.python(&program).await;
        assert!(!said.contains(&format!("host={evil}")), "{head}: {said}");
        world.saw_nothing_at(other.address);
    }
}

#[tokio::test]
async fn another_name_in_a_later_request() {
    let world = world().await;
    let forger = Forger::new(&world, "later").await;
    let Forger { guest, listed, other } = &forger;
    // After the answer to the first request, and pipelined.
    for wait in ["s.recv(9999)", "pass"] {
        let program = format!(
            "s = tcp('{0}', 80); s.send(request('{0}', end='keep-alive'))\n{wait}\n\
             s.send(request('{1}', '/hello?stolen')); print(all_of(s))",
            listed.name, other.name
        );
        let said = guest.python(&program).await;
        assert!(!said.contains(&format!("host={}", other.name)), "{wait}: {said}");
    }
    guest.was_told(&["name-changed"], &other.name).await;
    assert!(!world.internet.web_log().contains(&format!("host={} sni= GET /hello?stolen", other.name)));
    // A body that looks like a request is not one.
    let program = format!(
        "body = request('{1}'); s = tcp('{0}', 80)\n\
         s.send(f'POST /upload HTTP/1.1\\r\\nHost: {0}\\r\\nContent-Length: {{len(body)}}\\r\\nConnection: close\\r\\n\\r\\n'.encode() + body)\n\
         print(all_of(s))",
        listed.name, other.name
    );
    assert!(guest.python(&program).await.contains("taken"));
    world.saw_nothing_at(other.address);
}

/// Request smuggling: two lengths, a length and chunks, invalid chunks.
#[tokio::test]
async fn a_request_hidden_in_a_body() {
    let world = world().await;
    let forger = Forger::new(&world, "smuggled").await;
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
        let said = forger.guest.python(&program).await;
        assert!(!said.contains(&format!("host={}", other.name)), "{head}: {said}");
    }
    assert!(!world.internet.web_log().contains(&format!("host={} sni= GET /hello?hidden", other.name)));
}

/// Names inside TLS are invisible (documented); those in HTTP/2 without TLS are checked.
#[tokio::test]
async fn http2_in_the_clear() {
    let world = world().await;
    let forger = Forger::new(&world, "prior").await;
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
    world.saw_nothing_at(other.address);
}
