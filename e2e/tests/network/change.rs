//! Policy changes of a running sandbox: new flows are decided by the new policy at once, and open ones are cut within a
//! second.

use std::time::{Duration, Instant};

use e2e::internet::StreamMode;
use serde_json::{Value, json};

use crate::guest::{Guest, python};
use crate::{until, world};

const CUT_WITHIN: Duration = Duration::from_secs(1);

/// A TLS connection that stays open until it is cut, and reports that.
fn holds_tls(name: &str) -> String {
    python(&format!(
        "context = ssl.create_default_context()\ns = context.wrap_socket(tcp('{name}', 443, 50), server_hostname='{name}')\n\
         s.send(request('{name}', end='keep-alive')); assert b'hello' in s.recv(9999)\nprint('begun', flush=True)\n\
         try:\n    got = s.recv(1)\n    print('closed' if not got else got)\nexcept ConnectionError:\n    print('cut')\n\
         except TimeoutError:\n    print('still there')"
    ))
}

/// A download without end; reports when it stops.
fn holds_stream(name: &str, port: u16) -> String {
    python(&format!(
        "s = tcp('{name}', {port}, 3); s.send(request('{name}')); s.recv(99)\nprint('begun', flush=True)\n\
         end = time.time() + 50\ntry:\n    while time.time() < end:\n        if not s.recv(9999): print('closed'); break\n    \
         else: print('still there')\nexcept (ConnectionError, TimeoutError):\n    print('cut')"
    ))
}

/// Exchanges datagrams; reports when no answer arrives.
fn holds_echo(name: &str) -> String {
    python(&format!(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(0.5); s.connect(('{name}', 7))\n\
         s.send(b'x'); s.recv(9)\nprint('begun', flush=True)\nend = time.time() + 50\n\
         try:\n    while time.time() < end:\n        s.send(b'x'); s.recv(9); time.sleep(0.02)\n    print('still there')\nexcept OSError:\n    print('cut')"
    ))
}

#[tokio::test]
async fn what_is_allowed_no_more_is_cut() {
    let world = world().await;
    let (kept, goes) = (world.site("change-kept"), world.site("change-goes"));
    for site in [&kept, &goes] {
        world.internet.echo_at(site.address, 7).unwrap();
        world.internet.stream_at(site.address, 8000, StreamMode::Drips).unwrap();
        world.internet.stream_at(site.address, 2525, StreamMode::Greets).unwrap();
    }
    let raw = |name: &str| {
        python(&format!(
            "s = tcp('{name}', 2525, 50); s.recv(99); print('begun', flush=True)\n\
             try:\n    print('closed' if not s.recv(9) else 'more')\nexcept ConnectionError:\n    print('cut')\nexcept TimeoutError:\n    print('still there')"
        ))
    };
    let guest = world.strict(&[&kept.name, &goes.name]).await;
    let holds = |name: &str| [holds_tls(name), holds_stream(name, 8000), holds_echo(name), raw(name)];
    let (mut stay, mut end) = (Vec::new(), Vec::new());
    for (mine, theirs) in holds(&kept.name).iter().zip(&holds(&goes.name)) {
        stay.push(guest.goes_on(mine).await);
        end.push(guest.goes_on(theirs).await);
    }
    guest.patch(json!({ "allow": [kept.name] })).await;
    let begin = Instant::now();
    for (n, stream) in end.iter_mut().enumerate() {
        let said = stream.next().await.unwrap().unwrap().data;
        assert!(said == "cut" || said == "closed", "{n}: {said}");
    }
    // The client gives up half a second after the last answer.
    assert!(begin.elapsed() < CUT_WITHIN + Duration::from_millis(700), "cut after {:?}", begin.elapsed());
    guest.fails(&format!("curl -sS --max-time 5 https://{}/hello", goes.name)).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", kept.name)).await;
    for stream in &mut stay {
        let next = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
        assert!(next.is_err(), "what is allowed still was cut: {next:?}");
    }
    // Added names work at once.
    guest.patch(json!({ "allow": [kept.name, goes.name] })).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", goes.name)).await;
}

#[tokio::test]
async fn from_open_to_closed_and_back() {
    let world = world().await;
    let (listed, other) = (world.site("turn-listed"), world.site("turn-other"));
    for site in [&listed, &other] {
        world.internet.echo_at(site.address, 7).unwrap();
        world.internet.stream_at(site.address, 8000, StreamMode::Drips).unwrap();
    }
    let guest = world.open().await;
    let mut held = Vec::new();
    for hold in [holds_tls(&other.name), holds_stream(&other.name, 8000), holds_echo(&other.name)] {
        held.push(guest.goes_on(&hold).await);
    }
    guest.patch(json!({ "default": "deny", "allow": [listed.name] })).await;
    let begin = Instant::now();
    for stream in &mut held[1..] {
        let said = stream.next().await.unwrap().unwrap().data;
        assert!(said == "cut" || said == "closed", "{said}");
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "cut after {:?}", begin.elapsed());
    let before = world.internet.seen().all(|packet| packet.to == std::net::IpAddr::from(other.address)).len();
    guest.fails(&format!("curl -sS --max-time 5 http://{}/hello", other.name)).await;
    guest.fails(&format!("curl -sS --max-time 5 http://{}/hello", other.address)).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", listed.name)).await;
    assert_eq!(world.internet.seen().to(other.address).len(), before);
    guest.patch(json!({ "default": "allow" })).await;
    guest.output(&format!("curl -sS --max-time 5 http://{}/hello", other.address)).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", other.name)).await;
}

#[tokio::test]
async fn it_is_shown_and_told() {
    let world = world().await;
    let site = world.site("shown");
    let guest = Guest::new(&world, json!({ "default": "deny", "allow": [site.name] })).await;
    let shown = async || guest.client.get(&guest.path("network")).await.unwrap().is(200).unwrap();
    let network = shown().await;
    assert_eq!(network["egress"], json!({ "default": "deny", "allow": [site.name] }));
    guest
        .output(&format!(
            "curl -sS --max-time 20 https://{}/files/big | head -c 3000000 >/dev/null; true",
            site.name
        ))
        .await;
    until("the bytes are counted", Duration::from_secs(5), async || {
        let usage = shown().await["usage"].clone();
        usage["bytesIn"].as_u64() >= Some(3_000_000) && usage["bytesOut"].as_u64() >= Some(100)
    })
    .await;
    guest.patch(json!({ "default": "allow", "allow": ["*.web.example"] })).await;
    let network = shown().await;
    assert_eq!(network["egress"], json!({ "default": "allow", "allow": ["*.web.example"] }));
    let sandbox =
        guest.client.get(&format!("{}/{}", crate::SANDBOXES, guest.id)).await.unwrap().is(200).unwrap();
    assert_eq!(sandbox["network"]["egress"], network["egress"]);
    let file = world.service.place.data.join("store.db");
    let query =
        format!("select data from events where sandbox = '{}' and kind = 'network.changed'", guest.id);
    let output =
        std::process::Command::new("sqlite3").arg("-readonly").arg(file).arg(query).output().unwrap();
    let event: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(event["egress"], network["egress"]);
}

/// A sandbox keeps its policy while it is paused, even if its processes are lost.
#[tokio::test]
async fn it_stays_over_a_pause() {
    let world = world().await;
    let (listed, other) = (world.site("pause-listed"), world.site("pause-other"));
    let guest = world.strict(&[&listed.name]).await;
    guest.order("pause").await;
    guest.order("resume").await;
    let works = async || {
        guest.output(&format!("curl -sS --max-time 10 https://{}/hello", listed.name)).await;
        guest.fails(&format!("curl -sS --max-time 5 https://{}/hello", other.name)).await;
        guest.fails(&format!("curl -sS --max-time 5 http://{}/hello", other.address)).await;
    };
    works().await;
    // A change while paused is in force after resume.
    guest.order("pause").await;
    guest.patch(json!({ "allow": [other.name] })).await;
    guest.order("resume").await;
    guest.output(&format!("curl -sS --max-time 10 https://{}/hello", other.name)).await;
    guest.fails(&format!("curl -sS --max-time 5 https://{}/hello", listed.name)).await;
}
