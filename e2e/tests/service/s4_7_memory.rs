//! Section 4.7: output that clients do not read is bounded in memory, for each account and for all together.

use std::time::{Duration, Instant};

use e2e::service::{Client, Raw, Service, ServiceOptions};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::{created, number, output, ran, text, until, verb};

const MIB: usize = 1 << 20;
/// The most that the daemon may take, whatever clients leave unread.
const MOST_RSS_KB: u64 = 200_000;
/// A kept answer is also compressed, in one piece, for its record.
const MOST_RSS_KEPT_KB: u64 = 256_000;
/// 16 MiB of a byte that JSON writes as six, on both streams.
const FLOOD: &str = "head -c 16777216 /dev/zero | tr '\\0' '\\1' | tee /dev/stderr";

/// The resident memory of the daemon.
fn rss_kb(service: &Service) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.pid().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A service that runs many commands at once in one sandbox.
async fn crowded() -> Service {
    let options = ServiceOptions::default().with("limits", "concurrent_executions", "100");
    Service::start(&options).await.unwrap()
}

/// Sends a command on a connection of its own, of which nothing is read.
async fn unread(service: &Service, client: &Client, id: &str, command: &str, key: Option<&str>) -> Raw {
    let body = json!({ "command": command }).to_string();
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Type: application/json\r\n{key}Content-Length: {}\r\n\r\n{body}",
        verb(id, "execute"),
        client.authorization(),
        body.len()
    );
    let mut raw = service.raw().await.unwrap();
    assert!(raw.write(request.as_bytes()).await);
    raw
}

/// The highest memory while `work` lasts.
async fn highest<T>(service: &Service, work: impl Future<Output = T>) -> (T, u64) {
    let mut work = std::pin::pin!(work);
    let mut highest = rss_kb(service);
    loop {
        match tokio::time::timeout(Duration::from_millis(20), &mut work).await {
            Ok(done) => return (done, highest.max(rss_kb(service))),
            Err(_) => highest = highest.max(rss_kb(service)),
        }
    }
}

/// The statuses of responses that were left unread so far.
async fn statuses(unread: Vec<Raw>) -> Vec<u16> {
    let mut all = Vec::new();
    for mut raw in unread {
        let mut line = [0; 12];
        let read = tokio::time::timeout(Duration::from_secs(30), raw.0.read_exact(&mut line)).await;
        read.unwrap().unwrap();
        all.push(std::str::from_utf8(&line[9..]).unwrap().parse().unwrap());
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_clients_that_do_not_read_take_bounded_memory() {
    let service = crowded().await;
    let (flooder, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    let (id, honest) = (created(&flooder).await, created(&other).await);
    let before = rss_kb(&service);
    let flood = async {
        let mut held = Vec::new();
        for _ in 0..50 {
            held.push(unread(&service, &flooder, &id, FLOOD, None).await);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        // The flood's own account and another one still run commands, and the other one gets a large output too.
        for (client, id) in [(&flooder, &id), (&other, &honest)] {
            let begun = Instant::now();
            assert_eq!(output(&client.apart(), id, "echo hello").await, "hello\n");
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        }
        let large =
            ran(&other.apart(), &honest, json!({ "command": "head -c 4000000 /dev/zero | tr '\\0' x" }))
                .await;
        assert_eq!(text(&large["stdout"]).len(), 4_000_000);
        tokio::time::sleep(Duration::from_secs(15)).await;
        held
    };
    let (held, highest_kb) = highest(&service, flood).await;
    println!(
        "50 unread responses of 32 MiB: {before} kB before, at most {highest_kb} kB, {} kB now",
        rss_kb(&service)
    );
    assert!(highest_kb <= MOST_RSS_KB, "{highest_kb} kB");
    let statuses = statuses(held).await;
    println!("their statuses: {statuses:?}");
    assert!(statuses.iter().all(|status| [200, 503].contains(status)) && statuses.contains(&200));
    // With the clients gone everything is released: the largest output fits at once.
    until("the memory is released", async || {
        let answer = flooder.apart().post(&verb(&id, "execute"), &json!({ "command": FLOOD })).await.unwrap();
        answer.status == 200 && answer.json().unwrap()["stdout"].as_str().unwrap().len() == 16 * MIB
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_output_does_not_fit_is_ended_and_says_so() {
    let options = ServiceOptions::default()
        .with("limits", "buffered_output_bytes", "4194304")
        .with("limits", "buffered_output_bytes_per_account", "4194304")
        .with("limits", "max_output_bytes", "1048576");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = created(&client).await;
    let large = "head -c 1048576 /dev/zero | tr '\\0' '\\1' | tee /dev/stderr; touch /ended; sleep 1";
    let _held = unread(&service, &client, &id, large, None).await;
    until("the first has ended", async || output(&client, &id, "ls /ended 2>&1; true").await == "/ended\n")
        .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    // Killed long before its end, which its sleep shows.
    let second = format!("{large}; sleep 60; touch /second");
    let answer = client.apart().post(&verb(&id, "execute"), &json!({ "command": second })).await.unwrap();
    let error: Value = answer.error(503, "RESOURCE_EXHAUSTED").unwrap();
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(error["details"]["commandStarted"], true, "{error}");
    assert_eq!(output(&client, &id, "ls /second 2>/dev/null | wc -l; pgrep -c sleep; true").await, "0\n0\n");
    // Truncated output counts with what is kept of it.
    let result = ran(&client, &id, json!({ "command": "head -c 200000 /dev/zero | tr '\\0' x" })).await;
    assert_eq!(text(&result["stdout"]).len(), 200_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_answers_and_their_replays_take_bounded_memory() {
    let service = crowded().await;
    let client = service.account().await.unwrap();
    let id = created(&client).await;
    let flood = async {
        // One after the other, each read, so that six are kept.
        for number in 0..6 {
            let body = json!({ "command": FLOOD });
            let apart = client.apart();
            let call = apart.call(hyper::Method::POST, &verb(&id, "execute")).json(&body);
            let answer = call.header("idempotency-key", &format!("key-{number}")).send().await.unwrap();
            let result = answer.is(200).unwrap();
            assert_eq!((text(&result["stdout"]).len(), number_of(&result)), (16 * MIB, 0));
        }
        let mut held = Vec::new();
        for number in 0..30 {
            let key = format!("key-{}", number % 6);
            held.push(unread(&service, &client, &id, FLOOD, Some(&key)).await);
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        held
    };
    let (held, highest_kb) = highest(&service, flood).await;
    let database: u64 = ["store.db", "store.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(service.place.data.join(name)).ok())
        .map(|file| file.len())
        .sum();
    println!(
        "six kept answers, thirty unread replays: at most {highest_kb} kB, database {} MiB",
        database >> 20
    );
    assert!(highest_kb <= MOST_RSS_KEPT_KB, "{highest_kb} kB");
    assert!(database < 400 << 20, "{database} bytes");
    let statuses = statuses(held).await;
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
}

fn number_of(result: &Value) -> u64 {
    number(&result["exitCode"])
}
