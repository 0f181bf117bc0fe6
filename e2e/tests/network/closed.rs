//! Addresses that no policy opens: the machine's own, private ones, a cloud's metadata service, and all of IPv6.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use e2e::internet::{MACHINE, MACHINE_V6, OUTSIDE_V6};
use serde_json::json;

use crate::guest::Guest;
use crate::{TestNet, shared_net};

const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Tests under both defaults.
async fn under_both(net: &TestNet, test: impl AsyncFn(&Guest<'_>)) {
    let listed = net.internet.unused_address().unwrap();
    let name = format!("only-{listed}.web.example").replace("..", ".");
    for policy in [json!({ "default": "deny", "allow": [name] }), json!({ "default": "allow" })] {
        let guest = Guest::new(net, policy).await;
        test(&guest).await;
        guest.terminate().await;
    }
}

/// Probes each protocol to each address, and reports those that pass. The sandbox's own loopback answers pings.
fn probe(addresses: &[String], ports: &[u16]) -> String {
    format!(
        "for address in {addresses:?}:\n    for port in {ports:?}:\n        \
         try:\n            s = tcp(address, port, 2); s.send(request('a.web.example')); got = all_of(s)\n            \
         if b'HTTP/' in got or b'secret' in got: print('tcp', address, port, got)\n        \
         except OSError: pass\n        \
         for kind in (socket.SOCK_DGRAM,):\n            \
         try:\n                u = socket.socket(socket.AF_INET, kind); u.settimeout(0.3); u.connect((address, port))\n                \
         u.send(b'hello'); u.recv(99); print('udp', address, port)\n            except OSError: pass\n    \
         if not address.startswith(('127.', '0.')) and os.system(f'ping -c 1 -W 1 {{address}} >/dev/null 2>&1') == 0: print('ping', address)"
    )
}

#[tokio::test]
async fn the_metadata_service_is_closed() {
    let net = shared_net().await;
    under_both(&net, async |guest| {
        for url in [
            "http://169.254.169.254",
            "http://2852039166",
            "http://0xa9fea9fe",
            "http://[::ffff:169.254.169.254]",
        ] {
            guest.fails(&format!("curl -sS --max-time 5 {url}/latest/meta-data/")).await;
            guest
                .fails(&format!("curl -sS --max-time 5 -H 'Host: a.web.example' {url}/latest/meta-data/"))
                .await;
        }
        guest.wait_for_refusal(&["closed-address"], &METADATA.to_string()).await;
        assert_eq!(guest.python(&probe(&[METADATA.to_string()], &[80, 443, 53])).await, "");
        net.assert_no_packets_to(METADATA);
    })
    .await;
}

#[tokio::test]
async fn private_and_reserved_ranges_are_closed() {
    let net = shared_net().await;
    let addresses: Vec<Ipv4Addr> = [
        "10.0.0.1",
        "10.255.255.254",
        "172.16.0.1",
        "172.31.255.254",
        "192.168.0.1",
        "192.168.77.20",
        "100.64.0.1",
        "100.127.255.254",
        "169.254.1.1",
        "198.18.0.1",
        "192.0.0.8",
        "168.63.129.16",
    ]
    .iter()
    .map(|address| address.parse().unwrap())
    .collect();
    let listed: Vec<String> = addresses
        .iter()
        .map(ToString::to_string)
        .chain(["224.0.0.1", "239.1.2.3", "255.255.255.255", "0.0.0.0", "240.0.0.1"].map(str::to_owned))
        .collect();
    under_both(&net, async |guest| {
        assert_eq!(guest.python(&probe(&listed, &[80, 443])).await, "");
        guest.wait_for_refusal(&["closed-address"], "10.0.0.1").await;
        for address in &addresses {
            net.assert_no_packets_to(*address);
        }
        assert_eq!(net.internet.packets().all(|packet| packet.to.is_multicast() && packet.to.is_ipv4()), []);
    })
    .await;
}

#[tokio::test]
async fn the_host_is_closed() {
    let net = shared_net().await;
    let everywhere = TcpListener::bind("0.0.0.0:0").unwrap();
    let loopback = TcpListener::bind("127.0.0.1:0").unwrap();
    let datagrams = UdpSocket::bind("0.0.0.0:0").unwrap();
    let tcp = [&everywhere, &loopback].map(|listener| listener.local_addr().unwrap().port());
    let udp = datagrams.local_addr().unwrap().port();
    for listener in [&everywhere, &loopback] {
        listener.set_nonblocking(true).unwrap();
    }
    datagrams.set_nonblocking(true).unwrap();
    let service = [net.service.address.port(), net.service.plain.port(), net.service.metrics.port()];
    let ports: Vec<u16> = tcp.into_iter().chain([udp]).chain(service).chain([22, 15001, 15002]).collect();
    let gateways =
        net.internet.machine().shell("ip -4 -o address show | awk '{print $4}' | cut -d/ -f1").unwrap();
    let addresses: Vec<String> =
        gateways.lines().map(str::to_owned).chain(["127.0.0.2".to_owned()]).collect();
    assert!(MACHINE.iter().all(|own| addresses.contains(&own.to_string())), "{addresses:?}");
    under_both(&net, async |guest| {
        // Before the many probes, because not every refusal becomes an event.
        guest.fails(&format!("curl -sS --max-time 3 http://{}:{}/", MACHINE[1], tcp[0])).await;
        guest.wait_for_refusal(&["closed-address"], &MACHINE[1].to_string()).await;
        assert_eq!(guest.python(&probe(&addresses, &ports)).await, "");
        for address in MACHINE {
            guest
                .fails(&format!("curl -sS -k --max-time 3 https://{address}:{}/v1/health", service[0]))
                .await;
            guest
                .fails(&format!(
                    "curl -sS -k --max-time 3 -H 'Host: a.web.example' http://{address}:{}/",
                    tcp[0]
                ))
                .await;
        }
    })
    .await;
    assert!(everywhere.accept().is_err() && loopback.accept().is_err(), "a connection reached the host");
    assert!(datagrams.recv(&mut [0; 9]).is_err(), "a datagram reached the host");
}

/// The gateway serves DNS and nothing else.
#[tokio::test]
async fn the_gateway_serves_dns_only() {
    let net = shared_net().await;
    under_both(&net, async |guest| {
        let program = r#"
gateway = open("/etc/resolv.conf").read().split()[1]
open_ones = []
for port in list(range(1, 1100)) + list(range(14900, 15100)) + [8080, 8443, 9090]:
    s = socket.socket(); s.settimeout(0.5)
    if s.connect_ex((gateway, port)) == 0: open_ones.append(port)
    s.close()
print(open_ones)
"#;
        assert_eq!(guest.python(program).await, "[53]\n");
    })
    .await;
}

#[tokio::test]
async fn ipv6_is_closed() {
    let net = shared_net().await;
    under_both(&net, async |guest| {
        let addresses = OUTSIDE_V6.iter().chain(&MACHINE_V6).chain(&["ff02::1", "::1", "fe80::1", "64:ff9b::a9fe:a9fe", "2002:cb00:7101::1"]);
        for address in addresses {
            let program = format!(
                "for scope in (0, *[n for n, name in socket.if_nameindex() if name != 'lo']):\n    \
                 for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):\n        \
                 try:\n            s = socket.socket(socket.AF_INET6, kind); s.settimeout(0.3)\n            \
                 s.connect(('{address}', 80, 0, scope)); s.send(b'GET / HTTP/1.0\\r\\n\\r\\n'); print('{address}', s.recv(9))\n        \
                 except OSError: pass"
            );
            assert_eq!(guest.python(&program).await, "");
        }
        // Raw frames, which bypass the routing table: neighbour messages, and packets with forged addresses.
        let program = r#"
links = [name for n, name in socket.if_nameindex() if name != "lo"]
try:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)
except OSError:
    links = []
for link in links:
    for to in ("2001:db8:ffff::1", "ff02::1", "2001:db8:1::1"):
        packet = struct.pack("!IHBB", 0x60000000, 8, 17, 64) + socket.inet_pton(10, "fe80::5") + socket.inet_pton(10, to) + struct.pack("!HHHH", 9, 80, 8, 0)
        for n in range(3):
            try: s.sendto(packet, (link, 0x86DD, 0, 0, b"\xff" * 6))
            except OSError: pass
print("sent")
"#;
        assert_eq!(guest.python(program).await, "sent\n");
        assert_eq!(guest.python_without_seccomp(program).await, "sent\n");
        assert_eq!(net.internet.packets().ipv6(), []);
    })
    .await;
}
