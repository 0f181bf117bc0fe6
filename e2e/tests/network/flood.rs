//! One sandbox uses all it can get; other sandboxes and the API are not affected.

use std::time::{Duration, Instant};

use crate::guest::{Guest, python};
use crate::{SANDBOXES, world};

/// Opens connections, as many at once as the sandbox's limits allow.
fn opens(count: usize, target: &str, port: u16, sends: &str) -> String {
    python(&format!(
        "import resource, multiprocessing\nresource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)\n\
         def work(n):\n    held = []\n    for n in range({count} // 10):\n        try:\n            \
         s = socket.socket(); s.settimeout(3); s.connect(('{target}', {port})); s.send({sends}); held.append(s)\n        \
         except OSError: pass\n    time.sleep(6)\n    return len(held)\n\
         print('begun', flush=True)\nprint(sum(multiprocessing.Pool(10).map(work, range(10))))"
    ))
}

/// The latency of a request of another sandbox, and of one to the API.
async fn others_are_served(other: &Guest<'_>, name: &str) {
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
async fn ten_thousand_connections() {
    let world = world().await;
    let (target, mine) = (world.site("flooded"), world.site("undisturbed"));
    let other = world.strict(&[&mine.name]).await;
    for (guest, sends) in [
        (world.strict(&[&target.name]).await, format!("request('{}', end='keep-alive')", target.name)),
        (world.strict(&[&target.name]).await, "b''".to_owned()),
        (world.open().await, format!("request('{}', end='keep-alive')", target.name)),
    ] {
        let mut flood = guest.goes_on(&opens(10_000, &target.name, 80, &sends)).await;
        others_are_served(&other, &mine.name).await;
        let held = flood.next().await.unwrap().unwrap().data;
        assert!(held.parse::<usize>().is_ok(), "{held}");
        // The flooding sandbox recovers.
        crate::until("it is served again", Duration::from_secs(30), async || {
            let said = guest.run(&format!("curl -sS --max-time 5 http://{}/hello", target.name)).await;
            said["exitCode"] == 0
        })
        .await;
        guest.terminate().await;
    }
}

#[tokio::test]
async fn a_flood_of_questions_and_datagrams() {
    let world = world().await;
    let (target, mine) = (world.site("asked-much"), world.site("still-served"));
    let (guest, other) =
        (world.strict(&[&target.name, "*.much.example"]).await, world.strict(&[&mine.name]).await);
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
    let mut flood = guest.goes_on(&python(program)).await;
    others_are_served(&other, &mine.name).await;
    assert!(flood.next().await.unwrap().is_some());
    // There is one event for each burst, not for each packet.
    assert!(guest.refusals().len() < 200, "{} events", guest.refusals().len());
    assert!(world.service.log().len() < 4_000_000, "the log has {} bytes", world.service.log().len());
}
