//! The daemon ends, is killed, or loses its rules: nothing opens, and everything works again afterwards.

use std::net::IpAddr;
use std::time::Duration;

use e2e::internet::{Site, StreamMode, TCP, UDP};
use e2e::service::ServiceOptions;

use crate::guest::{Guest, python};
use crate::{World, until};

/// Two sandboxes, one of each default, that continuously try closed destinations and record what they reach.
struct Tries<'a> {
    strict: Guest<'a>,
    open: Guest<'a>,
    listed: Site,
    other: Site,
}

impl<'a> Tries<'a> {
    async fn new(world: &'a World) -> Self {
        let (listed, other) = (world.site("death-listed"), world.site("death-other"));
        for site in [&listed, &other] {
            world.internet.echo_at(site.address, 7).unwrap();
            world.internet.stream_at(site.address, 2525, StreamMode::Greets).unwrap();
        }
        let tries =
            Self { strict: world.strict(&[&listed.name]).await, open: world.open().await, listed, other };
        tries.works().await;
        tries
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

    /// Starts the continuous tries, whether or not there is a daemon.
    async fn go_on_trying(&self) {
        let program = format!(
            "while True:\n    for address in ('{}', '169.254.169.254', '10.99.5.5', '192.0.2.1', '192.168.77.20'):\n        \
             for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n            for port in (80, 7, 53, 443, 2525):\n                \
             try:\n                    s = socket.socket(socket.AF_INET, kind); s.settimeout(0.05); s.connect((address, port))\n                    \
             s.send(b'GET /hello HTTP/1.0\\r\\n\\r\\n')\n                except OSError: pass\n    \
             open('/beat', 'a').write('x')",
            self.other.address
        );
        for guest in [&self.strict, &self.open] {
            let command = format!(
                "cat > /tries.py <<'END'\nimport socket\n{program}\nEND\nsetsid python3 /tries.py >/dev/null 2>&1 &"
            );
            guest.output(&command).await;
        }
    }

    async fn beats(&self) -> usize {
        self.strict.output("cat /beat 2>/dev/null | wc -c").await.trim().parse().unwrap()
    }
}

async fn own_world() -> World {
    World::new(ServiceOptions::default()).await
}

#[tokio::test]
async fn killed_and_started_again() {
    let world = own_world().await;
    let tries = Tries::new(&world).await;
    // Only the sandbox under default deny from here on: traffic of the other would hide its leaks.
    tries.open.terminate().await;
    let other = world.site("death-unseen");
    let command = format!(
        "cat > /tries.py <<'END'\nimport socket\nwhile True:\n    for kind in (1, 2):\n        for port in (80, 7, 53, 443):\n            \
         try:\n                s = socket.socket(2, kind); s.settimeout(0.05); s.connect(('{}', port)); s.send(b'GET /hello HTTP/1.0\\r\\n\\r\\n')\n            \
         except OSError: pass\n    open('/beat', 'a').write('x')\nEND\nsetsid python3 /tries.py >/dev/null 2>&1 &",
        other.address
    );
    tries.strict.output(&command).await;
    for round in 0..3 {
        let before = tries.beats().await;
        world.service.kill().unwrap();
        tokio::time::sleep(Duration::from_millis(1500)).await;
        world.saw_nothing_at(other.address);
        world.service.boot().await.unwrap();
        let guest = Guest { world: &world, client: tries.strict.client.apart(), id: tries.strict.id.clone() };
        let page = guest.output(&format!("curl -sS --max-time 10 https://{}/hello", tries.listed.name)).await;
        assert!(page.starts_with("hello"), "round {round}");
        let after: usize = guest.output("cat /beat | wc -c").await.trim().parse().unwrap();
        assert!(after > before + 2, "round {round}: it stopped trying");
        world.saw_nothing_at(other.address);
    }
    world.saw_nothing_at("169.254.169.254".parse::<IpAddr>().unwrap());
}

#[tokio::test]
async fn restarted_in_good_order() {
    let world = own_world().await;
    let tries = Tries::new(&world).await;
    // A connection under default allow bypasses the daemon and survives.
    let holds = python(&format!(
        "s = tcp('{}', 2525, 30); s.recv(99)\nprint('begun', flush=True)\nwhile not os.path.exists('/go'): time.sleep(0.05)\n\
         s.send(b'x'); open('/got', 'w').write(str(s.recv(9)))",
        tries.other.address
    ));
    let command = format!("({holds}\n) > /begun 2>&1 &\nuntil grep -q begun /begun; do sleep 0.05; done");
    tries.open.output(&command).await;
    world.service.restart().await.unwrap();
    let fresh = |guest: &Guest<'_>| (guest.client.apart(), guest.id.clone());
    let [(client, id), (open_client, open_id)] = [fresh(&tries.strict), fresh(&tries.open)];
    let tries = Tries {
        strict: Guest { world: &world, client, id },
        open: Guest { world: &world, client: open_client, id: open_id },
        listed: tries.listed.clone(),
        other: tries.other.clone(),
    };
    tries.works().await;
    tries
        .open
        .output("touch /go; for n in $(seq 100); do [ -s /got ] && break; sleep 0.05; done; grep -q x /got")
        .await;
}

/// Another program flushes the firewall.
#[tokio::test]
async fn the_rules_are_taken_away() {
    let world = own_world().await;
    let tries = Tries::new(&world).await;
    for command in
        ["nft flush ruleset", "nft delete table inet $(nft list tables | awk '/sandboxd_/ {print $3}')"]
    {
        world.internet.machine().shell(command).unwrap();
        until("the rules are back", Duration::from_secs(2), async || {
            world.internet.machine().shell("nft list tables").unwrap().contains("sandboxd_")
        })
        .await;
        tries.works().await;
    }
    // Each chain separately, while both try closed destinations.
    tries.go_on_trying().await;
    let shell = |command: &str| world.internet.machine().shell(command).unwrap();
    let table = shell("nft list tables | awk '/sandboxd_/ {print $3}'").trim().to_owned();
    let rules = |chain: &str| shell(&format!("nft list chain inet {table} {chain}")).lines().count();
    for chain in
        shell(&format!("nft list table inet {table} | awk '$1 == \"chain\" {{print $2}}'")).split_whitespace()
    {
        let before = rules(chain);
        shell(&format!("nft flush chain inet {table} {chain}"));
        until(&format!("{chain} is back"), Duration::from_secs(2), async || rules(chain) == before).await;
    }
    // While the rules were missing, packets may have passed; now none do.
    let arrived = || {
        let seen = world.internet.seen();
        let closed = ["169.254.169.254", "10.99.5.5", "192.168.77.20"]
            .map(|address| address.parse::<IpAddr>().unwrap());
        let ports = [80, 7, 53, 443, 2525].into_iter();
        let ways = ports.flat_map(|port| [(UDP, port), (TCP, port)]);
        ways.map(|(protocol, port)| closed.iter().map(|to| seen.at(*to, protocol, port)).sum::<u64>())
            .sum::<u64>()
    };
    let (before, beats) = (arrived(), tries.beats().await);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(arrived(), before);
    assert!(tries.beats().await > beats, "nobody tried");
    tries.works().await;
}
