//! Latency with hundreds of sandboxes, and of async work during creates.

use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use net::Network;

use crate::fixture::{Fixture, Namespace, SERVER, allow_all, guest, only, plug, plug_into, run};

const MANY: u32 = 500;

struct Times(Vec<Duration>);

impl Times {
    fn median(&mut self) -> Duration {
        self.0.sort_unstable();
        self.0[self.0.len() / 2]
    }

    fn print(&mut self, what: &str) {
        let median = self.median();
        eprintln!("{what}: median {median:?}, p99 {:?}", self.0[self.0.len() * 99 / 100]);
    }
}

#[tokio::test]
async fn latency_does_not_depend_on_the_number_of_sandboxes() {
    let fixture = Fixture::new();
    let (network, _told) = fixture.open();
    network.recover(&[]).await.unwrap();
    let namespaces: Vec<Namespace> = (0..MANY).map(|_| Namespace::new("many")).collect();
    let [mut plugs, mut applies, mut again, mut opens, mut unplugs] = [const { Vec::new() }; 5].map(Times);
    let names: Vec<String> = (0..50).map(|number| format!("host{number}.example.com")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let policy = only(&names);
    let timed = |times: &mut Times, since: Instant| times.0.push(since.elapsed());
    for (slot, namespace) in (0..).zip(&namespaces) {
        let guest = guest(slot);
        let since = Instant::now();
        plug_into(&network, &guest, namespace);
        timed(&mut plugs, since);
        let since = Instant::now();
        network.apply(&guest, &policy).await.unwrap();
        timed(&mut applies, since);
    }
    for slot in 0..MANY {
        let since = Instant::now();
        network.apply(&guest(slot), &policy).await.unwrap();
        timed(&mut again, since);
        let address = network.address(&guest(slot));
        let learnt: Vec<Ipv4Addr> = (0..4).map(|n| Ipv4Addr::from(0x0808_0000 + slot * 4 + n)).collect();
        let since = Instant::now();
        network.parts().kernel.open(address, &learnt, Duration::from_secs(60)).await.unwrap();
        timed(&mut opens, since);
    }
    let since = Instant::now();
    network.parts().kernel.is_host(SERVER).await.unwrap();
    eprintln!("is_host: {:?}", since.elapsed());
    let one = plug(&network, MANY);
    network.apply(&one.guest, &allow_all()).await.unwrap();
    assert!(one.echoes_datagram(SERVER) && one.connects(SERVER));
    let since = Instant::now();
    run("nft", &["flush", "ruleset"]);
    while !one.echoes_datagram(SERVER) {
        assert!(since.elapsed() < Duration::from_secs(3));
    }
    eprintln!("all of {MANY} back {:?} after a flush", since.elapsed());
    for slot in 0..MANY {
        let since = Instant::now();
        network.unplug(&guest(slot)).await.unwrap();
        timed(&mut unplugs, since);
    }
    plugs.print("plug");
    applies.print("first apply, 50 names");
    again.print("apply again");
    opens.print("learn 4 addresses");
    unplugs.print("unplug");
    assert!(applies.median() <= Duration::from_millis(5) && again.median() <= Duration::from_millis(5));
}

/// Sandboxes that look up names do not delay the policy of another one, which a create waits for.
#[tokio::test]
async fn learnt_addresses_of_other_sandboxes_do_not_delay_a_policy() {
    const LEARNERS: u32 = 4;
    const ANSWERS: u32 = 1000;
    let fixture = Fixture::new();
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let learners: Vec<_> = (0..LEARNERS).map(|slot| plug(&network, slot)).collect();
    let one = plug(&network, LEARNERS);
    let mut answers = Vec::new();
    let since = Instant::now();
    for learner in &learners {
        network.apply(&learner.guest, &only(&["*.example.com"])).await.unwrap();
        for number in 0..ANSWERS {
            let (parts, guest) = (Arc::clone(network.parts()), learner.address);
            let learnt = [Ipv4Addr::from(0x0808_0000 + number)];
            answers.push(tokio::spawn(async move {
                parts.kernel.open(guest, &learnt, Duration::from_secs(60)).await
            }));
        }
    }
    // Lets them all be queued.
    tokio::task::yield_now().await;
    let mut times = Times(Vec::new());
    while answers.iter().any(|answer| !answer.is_finished()) {
        let since = Instant::now();
        network.apply(&one.guest, &allow_all()).await.unwrap();
        times.0.push(since.elapsed());
    }
    let took = since.elapsed();
    for answer in answers {
        answer.await.unwrap().unwrap();
    }
    times.print("a policy beside sandboxes that learn addresses");
    let (first, count) = (times.0[0], times.0.len());
    eprintln!("{} answers took {took:?}; {count} policies, the fastest took {first:?}", LEARNERS * ANSWERS);
    // It waits for one answer of each, and not for all.
    assert!(times.median() < took / 20, "{:?} of {took:?}", times.median());
}

/// The test's runtime has one worker, so blocking it delays the timer.
#[tokio::test]
async fn concurrent_creates_do_not_block_the_async_worker() {
    let fixture = Fixture::new();
    let (network, _refusals) = fixture.open();
    network.recover(&[]).await.unwrap();
    let network = Arc::new(network);
    let namespaces: Vec<Namespace> = (0..20).map(|_| Namespace::new("burst")).collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let timer = tokio::spawn(async move {
        let mut longest = Duration::ZERO;
        while !over.load(Ordering::Relaxed) {
            let since = Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            longest = longest.max(since.elapsed());
        }
        longest
    });
    let since = Instant::now();
    let creates: Vec<_> = (0..)
        .zip(&namespaces)
        .map(|(slot, namespace)| {
            let (network, guest, file) = (Arc::clone(&network), guest(slot), namespace.file());
            tokio::spawn(async move {
                let (plugging, plugged) = (Arc::clone(&network), guest.clone());
                tokio::task::spawn_blocking(move || plugging.plug(&plugged, file.as_fd()).unwrap())
                    .await
                    .unwrap();
                for _ in 0..10 {
                    network.apply(&guest, &only(&["example.com"])).await.unwrap();
                    network.usage(&guest).await;
                    network.apply(&guest, &allow_all()).await.unwrap();
                }
                network.unplug(&guest).await.unwrap();
            })
        })
        .collect();
    for create in creates {
        create.await.unwrap();
    }
    let took = since.elapsed();
    is_over.store(true, Ordering::Relaxed);
    let longest = timer.await.unwrap();
    eprintln!("20 creates took {took:?}; the longest delay of a 1 ms timer was {longest:?}");
    assert!(longest < Duration::from_millis(100), "{longest:?}");
}
