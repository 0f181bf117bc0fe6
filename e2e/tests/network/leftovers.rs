//! A sandbox's kernel state is removed with it, and the shared state with the last sandbox and its daemon.

use std::time::{Duration, Instant};

use e2e::internet::Internet;
use e2e::service::ServiceOptions;
use rustix::process::Signal;

use crate::World;

/// Longer than the kernel keeps expiring entries.
const PATIENCE: Duration = Duration::from_secs(15);

/// Links, routes, neighbours and rules, as text.
fn state(internet: &Internet) -> String {
    internet
        .machine()
        .shell("ip -br link | awk '{print $1, $3}'; ip -4 route show table all; ip neigh show nud permanent; nft list ruleset")
        .unwrap()
}

/// Without counters and expiring entries.
fn plain(state: &str) -> String {
    let lines = state.lines().map(|line| {
        let words =
            line.split_whitespace().filter(|word| !word.contains("expires") && word.parse::<f64>().is_err());
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Waits until the kernel's state is as before; returns the difference if it does not become so.
async fn is_as(internet: &Internet, before: &str, after_what: &str) {
    let begin = Instant::now();
    let before = plain(before);
    loop {
        let now = plain(&state(internet));
        if now == before {
            return;
        }
        let new: Vec<&str> = now.lines().filter(|line| !before.lines().any(|old| old == *line)).collect();
        let gone: Vec<&str> = before.lines().filter(|line| !now.lines().any(|new| new == *line)).collect();
        assert!(begin.elapsed() < PATIENCE, "after {after_what} there is {new:#?}, and is not {gone:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn nothing_stays() {
    let world = World::new(ServiceOptions::default()).await;
    let site = world.site("leftover");
    world.internet.echo_at(site.address, 7).unwrap();
    let before = state(&world.internet);
    for _ in 0..3 {
        let guests = [world.strict(&[&site.name]).await, world.open().await, world.strict(&[]).await];
        for guest in &guests[..2] {
            guest.output(&format!("curl -sS --max-time 10 https://{}/hello", site.name)).await;
        }
        // One is terminated while it is paused.
        guests[2].order("pause").await;
        assert!(state(&world.internet).lines().count() > before.lines().count());
        for guest in guests {
            guest.terminate().await;
        }
        is_as(&world.internet, &before, "three sandboxes").await;
    }
    // One whose daemon died while it lived, and one that ended while no daemon ran.
    let guest = world.open().await;
    world.service.kill().unwrap();
    world.service.boot().await.unwrap();
    let client = guest.client.apart();
    client.delete(&format!("{}/{}", crate::SANDBOXES, guest.id)).await.unwrap().is(200).unwrap();
    is_as(&world.internet, &before, "one whose daemon died").await;
    world.service.signal(Signal::TERM).unwrap();
    world.service.gone(Duration::from_secs(30)).await.unwrap();
    let after = state(&world.internet);
    assert!(
        !after.contains("sandboxd_") && !after.contains("blackhole") && !after.contains("\nsb"),
        "{after}"
    );
}
