//! Ordinary clients work under both defaults.

use api::Isolation;
use e2e::internet::{BIG_MB, GREETING, Site, StreamMode};

use crate::guest::Guest;
use crate::{FILES, TestNet, shared_net};

/// Runs a test under a policy that lists the needed names, and under default allow.
async fn under_both(name: &str, more: &[&str], test: impl AsyncFn(&TestNet, &Guest<'_>, &Site)) {
    let net = shared_net().await;
    let site = net.site(name);
    let listed: Vec<&str> = more.iter().copied().chain([site.name.as_str()]).collect();
    for guest in [net.strict(&listed).await, net.open().await] {
        test(&net, &guest, &site).await;
        assert_eq!(guest.refusals(), Vec::<serde_json::Value>::new());
        guest.terminate().await;
    }
}

#[tokio::test]
async fn curl_and_wget_work() {
    under_both("pages", &[], async |_, guest, Site { name, address }| {
        for (scheme, port, more, version, sni) in [
            ("http", 80, "", "1.1", ""),
            ("http", 8080, "", "1.1", ""),
            ("https", 443, "", "2.0", name.as_str()),
            ("https", 443, "--http1.1", "1.1", name),
            ("https", 8443, "", "2.0", name),
            ("https", 443, "--tls-max 1.2", "2.0", name),
            ("http", 80, "--http1.0", "1.0", ""),
        ] {
            let command = format!("curl -sS --max-time 20 {more} {scheme}://{name}:{port}/hello");
            let page = format!("hello host={name} sni={sni} at={address}:{port} by=HTTP/{version}\n");
            assert_eq!(guest.output(&command).await, page, "{command}");
        }
        let wget = format!("wget -q -T 20 -O - --ca-certificate=/authority.pem https://{name}/hello");
        assert!(guest.output(&wget).await.starts_with("hello"));
        let uppercase = format!("curl -sS --max-time 20 https://{}/hello", name.to_uppercase());
        assert!(guest.output(&uppercase).await.starts_with("hello"));
    })
    .await;
}

#[tokio::test]
async fn many_requests_on_one_connection_work() {
    under_both("kept", &[], async |_, guest, Site { name, .. }| {
        let urls = |scheme: &str| vec![format!("{scheme}://{name}/hello"); 20].join(" ");
        for (scheme, more) in [("http", ""), ("https", "--http1.1"), ("https", "--http2")] {
            let command = format!("curl -sS --max-time 20 {more} -w '%{{num_connects}}\\n' {}", urls(scheme));
            let result = guest.output(&command).await;
            assert_eq!(result.matches("hello").count(), 20, "{result}");
            let connects = result.lines().filter(|line| *line == "1").count();
            assert_eq!(connects, 1, "{result}");
        }
    })
    .await;
}

#[tokio::test]
async fn large_downloads_and_uploads_work() {
    under_both("large", &[], async |_, guest, Site { name, .. }| {
        for scheme in ["http", "https"] {
            let size = guest.output(&format!("curl -sS --max-time 50 {scheme}://{name}/files/big | wc -c")).await;
            assert_eq!(size.trim(), (BIG_MB << 20).to_string());
            let upload = format!(
                "head -c 30000000 /dev/zero > /up; curl -sS --max-time 50 --data-binary @/up {scheme}://{name}/upload"
            );
            assert_eq!(guest.output(&upload).await, "taken\n");
        }
    })
    .await;
}

#[tokio::test]
async fn git_clone_works() {
    under_both("code", &[], async |_, guest, Site { name, .. }| {
        for scheme in ["http", "https"] {
            let clone =
                format!("rm -rf /p; git clone -q {scheme}://{name}/git/project.git /p && cat /p/README");
            assert_eq!(guest.output(&clone).await, "what was cloned\n");
        }
    })
    .await;
}

#[tokio::test]
async fn pip_and_npm_work() {
    under_both("packages", &[FILES], async |_, guest, Site { name, .. }| {
        let pip = format!(
            "pip install -q --no-cache-dir --break-system-packages --disable-pip-version-check --root-user-action=ignore \
             --index-url https://{name}/simple/ tiny-package && python3 -c 'import tiny_package; print(tiny_package.WORD)'"
        );
        assert_eq!(guest.output(&pip).await, "installed\n");
        let npm = format!(
            "mkdir -p /n && cd /n && npm install --silent --no-audit --no-fund --registry https://{name}/ tiny-package \
             && node -p 'require(\"tiny-package\")'"
        );
        assert_eq!(guest.output(&npm).await.lines().last(), Some("installed"));
    })
    .await;
}

#[tokio::test]
async fn node_fetch_and_websockets_work() {
    under_both("chat", &[], async |_, guest, Site { name, .. }| {
        let fetch = format!("node -e 'fetch(\"https://{name}/hello\").then(r => r.text()).then(console.log)'");
        assert!(guest.output(&fetch).await.starts_with("hello"));
        for scheme in ["ws", "wss"] {
            let talk = format!(
                "node -e 'const s = new WebSocket(\"{scheme}://{name}/socket\"); let n = 0; s.onopen = () => s.send(\"0\"); \
                 s.onmessage = m => {{ if (++n == 50) {{ console.log(m.data); s.close(); }} else s.send(String(n)); }}; \
                 s.onerror = e => {{ console.log(e.message); process.exit(1); }}'"
            );
            assert_eq!(guest.output(&talk).await, "49\n");
        }
    })
    .await;
}

#[tokio::test]
async fn openssl_and_python_work() {
    under_both("tls", &[], async |_, guest, Site { name, .. }| {
        let s_client = format!(
            "printf 'GET /hello HTTP/1.0\\r\\nHost: {name}\\r\\n\\r\\n' | timeout 20 openssl s_client -quiet -verify_return_error \
             -CAfile /authority.pem -connect {name}:443 -servername {name} 2>/dev/null"
        );
        assert!(guest.output(&s_client).await.contains("hello host"));
        let urllib = format!(
            "from urllib.request import urlopen\nprint(urlopen('https://{name}/hello', timeout=20).read().decode())"
        );
        assert!(guest.python(&urllib).await.starts_with("hello"));
    })
    .await;
}

#[tokio::test]
async fn other_protocols_to_a_learnt_address_work() {
    under_both("other", &[], async |net, guest, Site { name, address }| {
        let (echo, greeting) = (net.internet.echo_at(*address, 7), net.internet.stream_at(*address, 25, StreamMode::Greeting));
        // In the second run they are already running.
        let _ = (echo, greeting);
        let program = format!(
            "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5); s.connect(('{name}', 7))\n\
             for n in range(20):\n    s.send(b'x' * 1000 + bytes([n])); assert s.recv(2000)[-1] == n\n\
             s.send(b'y' * 4000); assert len(s.recv(8000)) == 4000\n\
             t = tcp('{name}', 25); print(t.recv(99).decode(), end='')\n\
             t.send(b'EHLO x\\r\\n'); print(t.recv(99).decode())"
        );
        assert_eq!(guest.python(&program).await, format!("{GREETING}EHLO x\r\n\n"));
        guest.output(&format!("ping -c 2 -W 3 {name}")).await;
    })
    .await;
}

/// Datagrams up to the size that UDP allows, from sockets with each kind of path MTU discovery.
#[tokio::test]
async fn datagrams_of_all_sizes_pass() {
    under_both("large-datagrams", &[], async |net, guest, Site { name, address }| {
        // In the second run the server of the first one is still running.
        let _ = net.internet.echo_at(*address, 7);
        // gVisor has no path MTU discovery.
        let discoveries = if e2e::isolation() == Isolation::Gvisor { "(0,)" } else { "(0, 1, 2)" };
        let program = format!(
            "IP_MTU_DISCOVER = 10\n\
             for discovery in {discoveries}:\n    for connected in (False, True):\n        \
             s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(5)\n        \
             s.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, discovery)\n        \
             if connected: s.connect(('{name}', 7))\n        \
             for size in (1472, 1473, 4000, 16384, 65507):\n            \
             data = bytes(n * 7 % 251 for n in range(size))\n            \
             s.send(data) if connected else s.sendto(data, ('{name}', 7))\n            \
             assert s.recv(65536) == data, size\n\
             print('echoed')"
        );
        assert_eq!(guest.python(&program).await, "echoed\n");
    })
    .await;
}

#[tokio::test]
async fn a_wildcard_covers_all_names_below_it() {
    let net = shared_net().await;
    let site = net.site("a.b.wild");
    let beside = net.site("notwild");
    let guest = net.strict(&["*.wild.web.example"]).await;
    let curl = |name: &str| format!("curl -sS --max-time 10 http://{name}/hello");
    assert!(guest.output(&curl(&site.name)).await.starts_with("hello"));
    for other in ["wild.web.example", beside.name.as_str()] {
        guest.fails(&curl(other)).await;
        guest.wait_for_refusal(&["not-allowed"], other).await;
    }
    net.assert_no_packets_to(beside.address);
}

/// DNS answers for listed names are faithful: no such name, no address, aliases.
#[tokio::test]
async fn dns_answers_for_listed_names_are_unchanged() {
    let net = shared_net().await;
    let site = net.site("named");
    net.internet
        .names()
        .set("alias.named.web.example", e2e::internet::DnsAnswer::Cname(site.name.clone(), 60));
    net.internet.names().set("empty.named.web.example", e2e::internet::DnsAnswer::A(vec![], 60));
    let long: Vec<_> = (0..60)
        .map(|_| net.internet.packets())
        .enumerate()
        .map(|(n, _)| std::net::Ipv4Addr::new(198, 51, 100, 100 + u8::try_from(n).unwrap()))
        .collect();
    net.internet.names().set("many.named.web.example", e2e::internet::DnsAnswer::OnlyOverTcp(long));
    let guest = net.strict(&["named.web.example", "*.named.web.example"]).await;
    let dig = async |rest: &str| guest.output(&format!("dig +time=5 +tries=1 {rest}")).await;
    assert_eq!(dig("+short named.web.example").await, format!("{}\n", site.address));
    assert_eq!(dig("+short +tcp named.web.example").await, format!("{}\n", site.address));
    assert!(dig("+short alias.named.web.example").await.ends_with(&format!("{}\n", site.address)));
    assert!(dig("nobody.named.web.example").await.contains("NXDOMAIN"));
    let empty = dig("empty.named.web.example").await;
    assert!(empty.contains("NOERROR") && empty.contains("ANSWER: 0"), "{empty}");
    let six = dig("AAAA named.web.example").await;
    assert!(six.contains("NOERROR") && six.contains("ANSWER: 0"), "{six}");
    assert_eq!(dig("+short many.named.web.example").await.lines().count(), 60);
}
