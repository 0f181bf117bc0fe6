//! A sandbox's kernel state is removed with it, and the shared state with the last sandbox and its daemon.

use std::time::{Duration, Instant};

use e2e::PATIENCE;
use e2e::internet::Internet;
use e2e::service::ServiceOptions;
use rustix::process::Signal;

use crate::TestNet;

/// Links, routes, neighbours and rules, as text.
fn state(internet: &Internet) -> String {
    internet
        .machine()
        .shell("ip -br link | awk '{print $1, $3}'; ip -4 route show table all; ip neigh show nud permanent; nft list ruleset")
        .unwrap()
}

/// The state without counters and expiring entries.
fn without_counters(state: &str) -> String {
    let lines = state.lines().map(|line| {
        let words =
            line.split_whitespace().filter(|word| !word.contains("expires") && word.parse::<f64>().is_err());
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until the kernel's state is as before.
async fn assert_state_restored(internet: &Internet, before: &str, after_what: &str) {
    let begin = Instant::now();
    let before = without_counters(before);
    loop {
        let now = without_counters(&state(internet));
        if now == before {
            return;
        }
        let new: Vec<&str> = now.lines().filter(|line| !before.lines().any(|old| old == *line)).collect();
        let gone: Vec<&str> = before.lines().filter(|line| !now.lines().any(|new| new == *line)).collect();
        assert!(begin.elapsed() < PATIENCE, "after {after_what} {new:#?} is new and {gone:#?} is missing");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn terminated_sandboxes_leave_no_kernel_state() {
    let net = TestNet::new(ServiceOptions::default()).await;
    let site = net.site("leftover");
    net.internet.echo_at(site.address, 7).unwrap();
    let before = state(&net.internet);
    for _ in 0..3 {
        let guests = [net.strict(&[&site.name]).await, net.open().await, net.strict(&[]).await];
        for guest in &guests[..2] {
            guest.output(&format!("curl -sS --max-time 10 https://{}/hello", site.name)).await;
        }
        // One is terminated while it is paused.
        guests[2].post_empty("pause").await;
        assert!(state(&net.internet).lines().count() > before.lines().count());
        for guest in guests {
            guest.terminate().await;
        }
        assert_state_restored(&net.internet, &before, "three sandboxes").await;
    }
    // One whose daemon died while it lived, and one that ended while no daemon ran.
    let guest = net.open().await;
    net.service.kill().unwrap();
    net.service.start_process().await.unwrap();
    let client = guest.client.with_own_connections();
    client.delete(&format!("{}/{}", crate::SANDBOXES, guest.id)).await.unwrap().is(200).unwrap();
    assert_state_restored(&net.internet, &before, "one whose daemon died").await;
    net.service.signal(Signal::TERM).unwrap();
    net.service.wait_for_exit(Duration::from_secs(30)).await.unwrap();
    let after = state(&net.internet);
    assert!(
        !after.contains("sandboxd_") && !after.contains("blackhole") && !after.contains("\nsb"),
        "{after}"
    );
}
