//! Tests of the simulated internet itself: everything is reachable from the host, so that a failure in a sandbox is a refusal.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::Ipv4Addr;
use std::process::Command;

use e2e::internet::{DnsAnswer, GREETING, Internet, OUTSIDE_V6, RESOLVER, StreamMode, TCP, UDP};

/// The output of a command on the host.
fn machine(internet: &Internet, command: &str) -> String {
    internet
        .machine()
        .inside(|| {
            // starts: curl, dig, git, python3
            let output = Command::new("bash").args(["-c", command]).output()?;
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            anyhow::ensure!(output.status.success(), "{command}: {}", text(&output.stderr));
            Ok(text(&output.stdout))
        })
        .unwrap()
}

#[test]
fn names_are_answered_by_udp_and_tcp() {
    let internet = Internet::new().unwrap();
    let site = internet.site("one").unwrap();
    let dig = |rest: &str| machine(&internet, &format!("dig +short +time=2 +tries=1 @{RESOLVER} {rest}"));
    let address = format!("{}\n", site.address);
    assert_eq!(dig(&site.name), address);
    assert_eq!(dig(&format!("+tcp {}", site.name)), address);
    internet.names().set("long.web.example", DnsAnswer::OnlyOverTcp(vec![site.address]));
    assert_eq!(dig("long.web.example"), address);
    internet.names().set("alias.web.example", DnsAnswer::Cname(site.name.clone(), 5));
    assert_eq!(dig("alias.web.example"), format!("{}.\n{address}", site.name));
    assert_eq!(dig("nobody.web.example"), "");
    assert!(internet.names().queries("nobody.web.example").len() == 1);
}

#[test]
fn the_web_is_reachable_by_http_https_and_git() {
    let internet = Internet::new().unwrap();
    internet.watch().unwrap();
    internet.web().unwrap();
    let site = internet.site("shop").unwrap();
    let authority = internet.authority();
    let curl = |rest: &str| {
        let resolve = format!("--resolve {0}:80:{1} --resolve {0}:443:{1}", site.name, site.address);
        let authority = authority.display();
        machine(&internet, &format!("curl -sS --max-time 5 --cacert {authority} {resolve} {rest}"))
    };
    let plain = curl(&format!("http://{}/hello", site.name));
    assert_eq!(plain, format!("hello host={} sni= at={}:80 by=HTTP/1.1\n", site.name, site.address));
    let h2 = curl(&format!("https://{}/hello", site.name));
    assert_eq!(h2, format!("hello host={0} sni={0} at={1}:443 by=HTTP/2.0\n", site.name, site.address));
    let upload = curl(&format!("-F f=@/etc/passwd https://{}/upload", site.name));
    assert_eq!(upload, "taken\n");
    let clone = format!(
        "d=$(mktemp -d); trap 'rm -rf $d' EXIT; git clone -q http://{}/git/project.git $d/p && cat $d/p/README",
        site.address
    );
    assert_eq!(machine(&internet, &clone), "what was cloned\n");
    assert!(machine(&internet, "curl -sS http://169.254.169.254/latest/meta-data/").contains("secret"));
    assert!(
        machine(&internet, &format!("curl -sS http://[{}]/latest/meta-data/", OUTSIDE_V6[1]))
            .contains("secret")
    );
    assert!(
        internet.packets().count(site.address, TCP, 443) > 0
            && internet.packets().count(site.address, TCP, 80) > 0
    );
    assert!(internet.packets().count(Ipv4Addr::new(169, 254, 169, 254), TCP, 80) > 0);
    assert!(!internet.packets().ipv6().is_empty());
    assert!(internet.web_log().contains(&format!("{}:443 https host={}", site.address, site.name)));
}

#[test]
fn echo_servers_answer_and_packets_are_recorded() {
    let internet = Internet::new().unwrap();
    internet.watch().unwrap();
    let address = internet.unused_address().unwrap();
    internet.echo_at(address, 443).unwrap();
    internet.stream_at(address, 25, StreamMode::Greeting).unwrap();
    internet.stream_at(address, 26, StreamMode::Echo).unwrap();
    let python = |port: u16, kind: &str, message: &str| {
        let script = format!(
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_{kind}); s.settimeout(3); \
             s.connect(('{address}', {port})); s.send(b'{message}'); print(s.recv(99).decode(), end='')"
        );
        machine(&internet, &format!("python3 -c \"{script}\""))
    };
    assert_eq!(python(443, "DGRAM", "hello"), "hello");
    assert_eq!(python(25, "STREAM", ""), GREETING);
    assert_eq!(python(26, "STREAM", "hello"), "hello");
    assert_eq!(internet.packets().count(address, UDP, 443), 1);
    assert!(internet.packets().count(address, TCP, 25) > 0);
    let other = internet.unused_address().unwrap();
    assert!(internet.packets().to(other).is_empty());
}

#[test]
fn two_internets_are_independent() {
    let (one, two) = (Internet::new().unwrap(), Internet::new().unwrap());
    let site = one.site("only-here").unwrap();
    let ask = format!("dig +short +time=2 +tries=1 @{RESOLVER} {}", site.name);
    assert_ne!(machine(&one, &ask), "");
    assert_eq!(machine(&two, &ask), "");
}
