//! One sandbox floods the network; other sandboxes and the API are not affected.

use std::time::{Duration, Instant};

use crate::guest::{Guest, python};
use crate::{SANDBOXES, shared_net};

/// Opens connections, as many at once as the sandbox's limits allow.
fn open_connections(count: usize, target: &str, port: u16, sends: &str) -> String {
    python(&format!(
        "import resource, multiprocessing\nresource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n\
         def work(n):\n    held = []\n    for n in range({count} // 10):\n        try:\n            \
         s = socket.socket(); s.settimeout(3); s.connect(('{target}', {port})); s.send({sends}); held.append(s)\n        \
         except OSError: pass\n    time.sleep(6)\n    return len(held)\n\
         print('begun', flush=True)\nprint(sum(multiprocessing.Pool(10).map(work, range(10))))"
    ))
}

/// The latency of a request of another sandbox, and of one to the API.
async fn assert_others_are_served(other: &Guest<'_>, name: &str) {
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let begin = Instant::now();
        let page = other.output(&format!("curl -sS --max-time 10 https://{name}/hello")).await;
        assert!(
            page.starts_with("hello") && begin.elapsed() < Duration::from_secs(3),
            "{:?}",
            begin.elapsed()
        );
        let begin = Instant::now();
        other.client.get(&format!("{SANDBOXES}?limit=1")).await.unwrap().is(200).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(1), "the service took {:?}", begin.elapsed());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test]
async fn ten_thousand_connections_do_not_affect_others() {
    let net = shared_net().await;
    let (target, mine) = (net.site("flooded"), net.site("undisturbed"));
    let other = net.strict(&[&mine.name]).await;
    for (guest, sends) in [
        (net.strict(&[&target.name]).await, format!("request('{}', end='keep-alive')", target.name)),
        (net.strict(&[&target.name]).await, "b''".to_owned()),
        (net.open().await, format!("request('{}', end='keep-alive')", target.name)),
    ] {
        let mut flood = guest.start(&open_connections(10_000, &target.name, 80, &sends)).await;
        assert_others_are_served(&other, &mine.name).await;
        let held = flood.next().await.unwrap().unwrap().data;
        assert!(held.parse::<usize>().is_ok(), "{held}");
        // The flooding sandbox recovers.
        e2e::wait_until("the sandbox is served again", async || {
            let result = guest.run(&format!("curl -sS --max-time 5 http://{}/hello", target.name)).await;
            result["exitCode"] == 0
        })
        .await;
        guest.terminate().await;
    }
}

#[tokio::test]
async fn floods_of_queries_and_datagrams_do_not_affect_others() {
    let net = shared_net().await;
    let (target, mine) = (net.site("asked-much"), net.site("still-served"));
    let (guest, other) =
        (net.strict(&[&target.name, "*.much.example"]).await, net.strict(&[&mine.name]).await);
    let program = r#"
server = open("/etc/resolv.conf").read().split()[1]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
print("begun", flush=True)
end = time.time() + 6
n = 0
while time.time() < end:
    for to in (server, "203.0.113.254"):
        n += 1
        label = f"n{n}".encode()
        query = struct.pack("!HHHHHH", n % 65536, 0x100, 1, 0, 0, 0) + bytes([len(label)]) + label + b"\x04much\x07example\0" + b"\0\1\0\1"
        try: s.sendto(query, (to, 53))
        except OSError: pass
print(n)
"#;
    let mut flood = guest.start(&python(program)).await;
    assert_others_are_served(&other, &mine.name).await;
    assert!(flood.next().await.unwrap().is_some());
    // There is one event for each burst, not for each packet.
    assert!(guest.refusals().len() < 200, "{} events", guest.refusals().len());
    assert!(net.service.log().len() < 4_000_000, "the log has {} bytes", net.service.log().len());
}
