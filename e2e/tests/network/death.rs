//! The daemon is stopped, is killed, or loses its firewall rules: nothing opens, and everything works again afterwards.

use std::net::IpAddr;
use std::time::Duration;

use e2e::internet::{Site, StreamMode, TCP, UDP};
use e2e::service::ServiceOptions;

use crate::guest::{Guest, python};
use crate::{TestNet, wait_until};

/// Two sandboxes, one of each default, that continuously probe closed destinations.
struct Probes<'a> {
    strict: Guest<'a>,
    open: Guest<'a>,
    listed: Site,
    other: Site,
}

impl<'a> Probes<'a> {
    async fn new(net: &'a TestNet) -> Self {
        let (listed, other) = (net.site("death-listed"), net.site("death-other"));
        for site in [&listed, &other] {
            net.internet.echo_at(site.address, 7).unwrap();
            net.internet.stream_at(site.address, 2525, StreamMode::Greeting).unwrap();
        }
        let probes =
            Self { strict: net.strict(&[&listed.name]).await, open: net.open().await, listed, other };
        probes.works().await;
        probes
    }

    async fn works(&self) {
        for guest in [&self.strict, &self.open] {
            for scheme in ["http", "https"] {
                guest.output(&format!("curl -sS --max-time 10 {scheme}://{}/hello", self.listed.name)).await;
            }
        }
        self.open.output(&format!("curl -sS --max-time 10 http://{}/hello", self.other.address)).await;
        self.refused().await;
    }

    async fn refused(&self) {
        for url in [format!("https://{}", self.other.name), format!("http://{}", self.other.address)] {
            self.strict.fails(&format!("curl -sS --max-time 3 {url}/hello")).await;
        }
        for guest in [&self.strict, &self.open] {
            for url in
                ["http://169.254.169.254", "http://10.99.5.5", "http://192.0.2.1", "http://192.168.77.20"]
            {
                guest.fails(&format!("curl -sS --max-time 2 {url}/latest/meta-data/")).await;
            }
        }
    }

    /// Starts probes that continue without a daemon. Faster ones would exceed the sandbox's share of tracked connections.
    async fn start_probing(&self) {
        let program = format!(
            "while True:\n    for address in ('{}', '169.254.169.254', '10.99.5.5', '192.0.2.1', '192.168.77.20'):\n        \
             for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n            for port in (80, 7, 53, 443, 2525):\n                \
             try:\n                    s = socket.socket(socket.AF_INET, kind); s.settimeout(0.05); s.connect((address, port))\n                    \
             s.send(b'GET /hello HTTP/1.0\\r\\n\\r\\n')\n                except OSError: pass\n                \
             time.sleep(0.02)\n        open('/beat', 'a').write('x')",
            self.other.address
        );
        for guest in [&self.strict, &self.open] {
            let command = format!(
                "cat > /tries.py <<'END'\nimport socket, time\n{program}\nEND\nsetsid python3 /tries.py >/dev/null 2>&1 &"
            );
            guest.output(&command).await;
        }
    }

    async fn beat_count(&self) -> usize {
        self.strict.output("cat /beat 2>/dev/null | wc -c").await.trim().parse().unwrap()
    }
}

async fn new_net() -> TestNet {
    TestNet::new(ServiceOptions::default()).await
}

#[tokio::test]
async fn nothing_opens_while_the_daemon_is_killed() {
    let net = new_net().await;
    let probes = Probes::new(&net).await;
    // Only the sandbox under default deny from here on: traffic of the other would hide its leaks.
    probes.open.terminate().await;
    let other = net.site("death-unseen");
    let command = format!(
        "cat > /tries.py <<'END'\nimport socket\nwhile True:\n    for kind in (1, 2):\n        for port in (80, 7, 53, 443):\n            \
         try:\n                s = socket.socket(2, kind); s.settimeout(0.05); s.connect(('{}', port)); s.send(b'GET /hello HTTP/1.0\\r\\n\\r\\n')\n            \
         except OSError: pass\n    open('/beat', 'a').write('x')\nEND\nsetsid python3 /tries.py >/dev/null 2>&1 &",
        other.address
    );
    probes.strict.output(&command).await;
    for round in 0..3 {
        let before = probes.beat_count().await;
        net.service.kill().unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        net.assert_no_packets_to(other.address);
        net.service.start_process().await.unwrap();
        let guest = Guest {
            net: &net,
            client: probes.strict.client.with_own_connections(),
            id: probes.strict.id.clone(),
        };
        let page =
            guest.output(&format!("curl -sS --max-time 10 https://{}/hello", probes.listed.name)).await;
        assert!(page.starts_with("hello"), "round {round}");
        let after: usize = guest.output("cat /beat | wc -c").await.trim().parse().unwrap();
        assert!(after > before + 2, "round {round}: the probes stopped");
        net.assert_no_packets_to(other.address);
    }
    net.assert_no_packets_to("169.254.169.254".parse::<IpAddr>().unwrap());
}

#[tokio::test]
async fn policies_work_after_a_clean_restart() {
    let net = new_net().await;
    let probes = Probes::new(&net).await;
    // A connection under default allow bypasses the daemon and survives.
    let holds = python(&format!(
        "s = tcp('{}', 2525, 30); s.recv(99)\nprint('begun', flush=True)\nwhile not os.path.exists('/go'): time.sleep(0.05)\n\
         s.send(b'x'); open('/got', 'w').write(str(s.recv(9)))",
        probes.other.address
    ));
    let command = format!("({holds}\n) > /begun 2>&1 &\nuntil grep -q begun /begun; do sleep 0.05; done");
    probes.open.output(&command).await;
    net.service.restart().await.unwrap();
    let reconnected = |guest: &Guest<'_>| (guest.client.with_own_connections(), guest.id.clone());
    let [(client, id), (open_client, open_id)] = [reconnected(&probes.strict), reconnected(&probes.open)];
    let probes = Probes {
        strict: Guest { net: &net, client, id },
        open: Guest { net: &net, client: open_client, id: open_id },
        listed: probes.listed.clone(),
        other: probes.other.clone(),
    };
    probes.works().await;
    probes
        .open
        .output("touch /go; for n in $(seq 100); do [ -s /got ] && break; sleep 0.05; done; grep -q x /got")
        .await;
}

/// Another program flushes the firewall.
#[tokio::test]
async fn flushed_firewall_rules_are_restored() {
    let net = new_net().await;
    let probes = Probes::new(&net).await;
    for command in
        ["nft flush ruleset", "nft delete table inet $(nft list tables | awk '/sandboxd_/ {print $3}')"]
    {
        net.internet.machine().shell(command).unwrap();
        wait_until("the rules are back", async || {
            net.internet.machine().shell("nft list tables").unwrap().contains("sandboxd_")
        })
        .await;
        probes.works().await;
    }
    // Each chain separately, while both sandboxes probe closed destinations.
    probes.start_probing().await;
    let shell = |command: &str| net.internet.machine().shell(command).unwrap();
    let table = shell("nft list tables | awk '/sandboxd_/ {print $3}'").trim().to_owned();
    let rules = |chain: &str| shell(&format!("nft list chain inet {table} {chain}")).lines().count();
    for chain in
        shell(&format!("nft list table inet {table} | awk '$1 == \"chain\" {{print $2}}'")).split_whitespace()
    {
        let before = rules(chain);
        shell(&format!("nft flush chain inet {table} {chain}"));
        wait_until(&format!("{chain} is back"), async || rules(chain) == before).await;
    }
    // While the rules were missing, packets may have passed; now none do.
    let arrived = || {
        let seen = net.internet.packets();
        let closed = ["169.254.169.254", "10.99.5.5", "192.168.77.20"]
            .map(|address| address.parse::<IpAddr>().unwrap());
        let ports = [80, 7, 53, 443, 2525].into_iter();
        let ways = ports.flat_map(|port| [(UDP, port), (TCP, port)]);
        ways.map(|(protocol, port)| closed.iter().map(|to| seen.count(*to, protocol, port)).sum::<u64>())
            .sum::<u64>()
    };
    let next_probes = async || {
        let begin = probes.beat_count().await;
        wait_until("probes go on", async || probes.beat_count().await > begin + 1).await;
    };
    // What passed may be recorded late.
    next_probes().await;
    let before = arrived();
    next_probes().await;
    assert_eq!(arrived(), before);
    probes.works().await;
}
