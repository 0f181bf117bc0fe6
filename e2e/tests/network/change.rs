//! Policy changes of a running sandbox: new flows are decided by the new policy at once, and open ones are cut within a
//! second.

use std::time::{Duration, Instant};

use e2e::internet::StreamMode;
use serde_json::{Value, json};

use crate::guest::{Guest, holds_echo, holds_stream, python};
use crate::{shared_net, wait_until};

const CUT_TIMEOUT: Duration = Duration::from_secs(1);

/// A TLS connection that stays open until it is cut, and reports that.
fn holds_tls(name: &str) -> String {
    python(&format!(
        "context = ssl.create_default_context()\ns = context.wrap_socket(tcp('{name}', 443, 50), server_hostname='{name}')\n\
         s.send(request('{name}', end='keep-alive')); assert b'hello' in s.recv(9999)\nprint('begun', flush=True)\n\
         try:\n    got = s.recv(1)\n    print('closed' if not got else got)\nexcept ConnectionError:\n    print('cut')\n\
         except TimeoutError:\n    print('still there')"
    ))
}

#[tokio::test]
async fn connections_that_become_forbidden_are_cut() {
    let net = shared_net().await;
    let (kept, removed) = (net.site("change-kept"), net.site("change-goes"));
    for site in [&kept, &removed] {
        net.internet.echo_at(site.address, 7).unwrap();
        net.internet.stream_at(site.address, 8000, StreamMode::Endless).unwrap();
        net.internet.stream_at(site.address, 2525, StreamMode::Greeting).unwrap();
    }
    let raw = |name: &str| {
        python(&format!(
            "s = tcp('{name}', 2525, 50); s.recv(99); print('begun', flush=True)\n\
             try:\n    print('closed' if not s.recv(9) else 'more')\nexcept ConnectionError:\n    print('cut')\nexcept TimeoutError:\n    print('still there')"
        ))
    };
    let guest = net.strict(&[&kept.name, &removed.name]).await;
    let holds = |name: &str| [holds_tls(name), holds_stream(name, 8000), holds_echo(name), raw(name)];
    let (mut stay, mut end) = (Vec::new(), Vec::new());
    for (mine, theirs) in holds(&kept.name).iter().zip(&holds(&removed.name)) {
        stay.push(guest.start(mine).await);
        end.push(guest.start(theirs).await);
    }
    guest.patch(json!({ "allow": [kept.name] })).await;
    let begin = Instant::now();
    for (n, stream) in end.iter_mut().enumerate() {
        let result = stream.next().await.unwrap().unwrap().data;
        assert!(result == "cut" || result == "closed", "{n}: {result}");
    }
    // The client gives up half a second after the last answer.
    assert!(begin.elapsed() < CUT_TIMEOUT + Duration::from_millis(700), "cut after {:?}", begin.elapsed());
    guest.fails(&format!("curl -sS --max-time 5 https://{}/hello", removed.name)).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", kept.name)).await;
    for stream in &mut stay {
        let next = tokio::time::timeout(Duration::from_millis(300), stream.next()).await;
        assert!(next.is_err(), "a connection that is still allowed was cut: {next:?}");
    }
    // Added names work at once.
    guest.patch(json!({ "allow": [kept.name, removed.name] })).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", removed.name)).await;
}

#[tokio::test]
async fn a_change_between_allow_and_deny_takes_effect() {
    let net = shared_net().await;
    let (listed, other) = (net.site("turn-listed"), net.site("turn-other"));
    for site in [&listed, &other] {
        net.internet.echo_at(site.address, 7).unwrap();
        net.internet.stream_at(site.address, 8000, StreamMode::Endless).unwrap();
    }
    let guest = net.open().await;
    let mut held = Vec::new();
    for hold in [holds_tls(&other.name), holds_stream(&other.name, 8000), holds_echo(&other.name)] {
        held.push(guest.start(&hold).await);
    }
    guest.patch(json!({ "default": "deny", "allow": [listed.name] })).await;
    let begin = Instant::now();
    for stream in &mut held[1..] {
        let result = stream.next().await.unwrap().unwrap().data;
        assert!(result == "cut" || result == "closed", "{result}");
    }
    assert!(begin.elapsed() < Duration::from_secs(4), "cut after {:?}", begin.elapsed());
    let before =
        net.internet.packets().all(|packet| packet.to == std::net::IpAddr::from(other.address)).len();
    guest.fails(&format!("curl -sS --max-time 5 http://{}/hello", other.name)).await;
    guest.fails(&format!("curl -sS --max-time 5 http://{}/hello", other.address)).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", listed.name)).await;
    assert_eq!(net.internet.packets().to(other.address).len(), before);
    guest.patch(json!({ "default": "allow" })).await;
    guest.output(&format!("curl -sS --max-time 5 http://{}/hello", other.address)).await;
    guest.output(&format!("curl -sS --max-time 5 https://{}/hello", other.name)).await;
}

#[tokio::test]
async fn policy_and_usage_are_shown_and_changes_are_events() {
    let net = shared_net().await;
    let site = net.site("shown");
    let guest = Guest::new(&net, json!({ "default": "deny", "allow": [site.name] })).await;
    let network_state = async || guest.client.get(&guest.path("network")).await.unwrap().is(200).unwrap();
    let network = network_state().await;
    assert_eq!(network["egress"], json!({ "default": "deny", "allow": [site.name] }));
    guest
        .output(&format!(
            "curl -sS --max-time 20 https://{}/files/big | head -c 3000000 >/dev/null; true",
            site.name
        ))
        .await;
    wait_until("the bytes are counted", async || {
        let usage = network_state().await["usage"].clone();
        usage["bytesIn"].as_u64() >= Some(3_000_000) && usage["bytesOut"].as_u64() >= Some(100)
    })
    .await;
    guest.patch(json!({ "default": "allow", "allow": ["*.web.example"] })).await;
    let network = network_state().await;
    assert_eq!(network["egress"], json!({ "default": "allow", "allow": ["*.web.example"] }));
    let sandbox =
        guest.client.get(&format!("{}/{}", crate::SANDBOXES, guest.id)).await.unwrap().is(200).unwrap();
    assert_eq!(sandbox["network"]["egress"], network["egress"]);
    let query =
        format!("select data from events where sandbox = '{}' and kind = 'network.changed'", guest.id);
    let event: Value = serde_json::from_str(&net.service.stored(&query).unwrap()[0]).unwrap();
    assert_eq!(event["egress"], network["egress"]);
}

/// A sandbox keeps its policy while it is paused, even if its processes are lost.
#[tokio::test]
async fn a_policy_survives_a_pause() {
    let net = shared_net().await;
    let (listed, other) = (net.site("pause-listed"), net.site("pause-other"));
    let guest = net.strict(&[&listed.name]).await;
    guest.post_empty("pause").await;
    guest.post_empty("resume").await;
    let works = async || {
        guest.output(&format!("curl -sS --max-time 10 https://{}/hello", listed.name)).await;
        guest.fails(&format!("curl -sS --max-time 5 https://{}/hello", other.name)).await;
        guest.fails(&format!("curl -sS --max-time 5 http://{}/hello", other.address)).await;
    };
    works().await;
    // A change while paused is in force after resume.
    guest.post_empty("pause").await;
    guest.patch(json!({ "allow": [other.name] })).await;
    guest.post_empty("resume").await;
    guest.output(&format!("curl -sS --max-time 10 https://{}/hello", other.name)).await;
    guest.fails(&format!("curl -sS --max-time 5 https://{}/hello", listed.name)).await;
}
