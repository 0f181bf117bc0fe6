//! Sandboxes cannot see or reach each other, whatever their policies and owners.

use serde_json::json;

use crate::guest::Guest;
use crate::shared_net;

const OWN_ADDRESS: &str = "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('203.0.113.1', 9)); print(s.getsockname()[0])";

#[tokio::test]
async fn sandboxes_cannot_reach_each_other() {
    let net = shared_net().await;
    let client = net.service.account().await.unwrap();
    let open = json!({ "default": "allow" });
    let (one, two) =
        (Guest::of(&net, client.clone(), open.clone()).await, Guest::of(&net, client, open).await);
    let strict = net.strict(&["friend.web.example"]).await;
    let address = two.python(OWN_ADDRESS).await.trim().to_owned();
    // The other sandbox listens on TCP and UDP and reports what it receives.
    let listens = r#"
import threading
def heard(what, s):
    s.recvfrom(9999) if what == "udp" else s.accept()
    print("heard", what, flush=True)
t = socket.socket(); t.bind(("0.0.0.0", 80)); t.listen()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("0.0.0.0", 80))
for pair in (("tcp", t), ("udp", u)): threading.Thread(target=heard, args=pair, daemon=True).start()
print("begun", flush=True)
time.sleep(12)
print("over", flush=True)
"#;
    let mut listener = two.start(&crate::guest::python(listens)).await;
    net.internet
        .names()
        .set("friend.web.example", e2e::internet::DnsAnswer::A(vec![address.parse().unwrap()], 60));
    for guest in [&one, &strict] {
        for command in [
            format!("ping -c 2 -W 1 {address}"),
            format!("curl -sS --max-time 3 http://{address}/"),
            format!("curl -sS --max-time 3 -H 'Host: friend.web.example' http://{address}/"),
            "curl -sS --max-time 3 http://friend.web.example/".to_owned(),
            format!(
                "python3 -c \"import socket; s = socket.socket(2, 2); s.settimeout(1); s.connect(('{address}', 80)); s.send(b'x'); s.recv(9)\""
            ),
        ] {
            guest.fails(&command).await;
        }
        guest.wait_for_refusal(&["closed-address"], &address).await;
        guest.wait_for_refusal(&["closed-answer", "not-allowed"], "friend.web.example").await;
    }
    let result = listener.next().await.unwrap().unwrap();
    assert_eq!(result.data, "over");
}

/// A sandbox's address and link announcements do not affect its neighbour.
#[tokio::test]
async fn forged_arp_and_link_changes_have_no_effect() {
    let net = shared_net().await;
    let site = net.site("neighbourly");
    let (liar, victim) = (net.open().await, net.open().await);
    let address = victim.python(OWN_ADDRESS).await.trim().to_owned();
    let program = format!(
        r#"
gateway = open("/etc/resolv.conf").read().split()[1]
links = [name for n, name in socket.if_nameindex() if name != "lo"]
sent = 0
try:
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    for link in links:
        s.bind((link, 0)); mac = s.getsockname()[4]
        for claimed in ("{address}", gateway, "203.0.113.7"):
            for operation in (1, 2):
                arp = struct.pack("!HHBBH", 1, 0x800, 6, 4, operation) + mac + socket.inet_aton(claimed) + b"\xff" * 6 + socket.inet_aton("{address}")
                for n in range(5):
                    sent += s.send(b"\xff" * 6 + mac + b"\x08\x06" + arp)
except OSError:
    pass
print("sent", sent > 0)
"#
    );
    assert_eq!(liar.python(&program).await, "sent False\n");
    assert_eq!(liar.python_without_seccomp(&program).await, "sent True\n");
    // gVisor's network stack is the sandbox's own, and what it forwards leaves by the same link.
    if e2e::isolation() == api::Isolation::Container {
        liar.fails("sysctl -w net.ipv4.ip_forward=1").await;
    }
    // It cannot change its own neighbours, addresses and routes.
    for command in [
        "ip neighbour replace 203.0.113.7 lladdr 02:00:00:00:00:07 dev eth0",
        "ip address add 10.64.0.77/32 dev eth0",
        "ip route replace default via 10.64.0.9 dev eth0 onlink",
        "ip link set eth0 down",
        "ip link set eth0 address 02:00:00:00:00:01",
        "ip link add v type veth",
        "unshare -n true",
    ] {
        liar.fails(command).await;
    }
    for guest in [&liar, &victim] {
        let page = guest.output(&format!("curl -sS --max-time 10 http://{}/hello", site.name)).await;
        assert!(page.starts_with("hello"));
    }
}

/// Two policies at the same time do not affect each other.
#[tokio::test]
async fn each_sandbox_has_its_own_policy() {
    let net = shared_net().await;
    let (one, two) = (net.site("policy-one"), net.site("policy-two"));
    net.internet.echo_at(one.address, 7).unwrap();
    let (first, second) = (net.strict(&[&one.name]).await, net.strict(&[&two.name]).await);
    let curl = |name: &str| format!("curl -sS --max-time 10 https://{name}/hello");
    let echo = |to: &str| {
        format!(
            "python3 -c \"import socket; s = socket.socket(2, 2); s.settimeout(2); s.connect(('{to}', 7)); s.send(b'x'); print(s.recv(9))\""
        )
    };
    for _ in 0..2 {
        first.output(&curl(&one.name)).await;
        second.output(&curl(&two.name)).await;
        first.fails(&curl(&two.name)).await;
        second.fails(&curl(&one.name)).await;
        // An address learnt by one is not learnt by the other.
        first.output(&echo(&one.name)).await;
        second.fails(&echo(&one.address.to_string())).await;
    }
    second.wait_for_refusal(&["unknown-address"], &one.address.to_string()).await;
}
