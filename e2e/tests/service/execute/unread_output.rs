//! Output that clients do not read is bounded in memory, per account and in total.

use std::time::{Duration, Instant};

use e2e::service::{Client, Raw, Service, ServiceOptions};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::{action_path, create_sandbox, number, output, run_command, text, wait_until};

const MIB: usize = 1 << 20;
/// The maximum resident memory of the daemon with unread output.
const MAX_RSS_KB: u64 = 200_000;
/// With idempotency keys. The budget for output covers neither the copy of a response for the database nor the buffer that a
/// record is decompressed into, which grows until its size is known. Each exists once at a time, with up to 32 MiB of output.
const MAX_RSS_IDEMPOTENT_KB: u64 = 256_000;
/// 16 MiB, on both streams, of a byte that JSON encodes as six.
const FLOOD: &str = "head -c 16777216 /dev/zero | tr '\\0' '\\1' | tee /dev/stderr";

/// A service that allows many concurrent commands in one sandbox.
async fn service_with_many_slots() -> Service {
    let options = ServiceOptions::default().with("limits", "concurrent_executions", "100");
    Service::start(&options).await.unwrap()
}

/// Sends a command on a new connection and reads nothing.
async fn send_without_reading(
    service: &Service,
    client: &Client,
    id: &str,
    command: &str,
    key: Option<&str>,
) -> Raw {
    let body = json!({ "command": command }).to_string();
    let key = key.map(|key| format!("Idempotency-Key: {key}\r\n")).unwrap_or_default();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {}\r\nContent-Type: application/json\r\n{key}Content-Length: {}\r\n\r\n{body}",
        action_path(id, "execute"),
        client.authorization(),
        body.len()
    );
    let mut raw = service.raw().await.unwrap();
    assert!(raw.write(request.as_bytes()).await);
    raw
}

/// The peak resident memory of the daemon during `work`.
async fn with_peak_rss<T>(service: &Service, work: impl Future<Output = T>) -> (T, u64) {
    let mut work = std::pin::pin!(work);
    let mut peak = service.resident_kb().unwrap();
    loop {
        match tokio::time::timeout(Duration::from_millis(20), &mut work).await {
            Ok(done) => return (done, peak.max(service.resident_kb().unwrap())),
            Err(_) => peak = peak.max(service.resident_kb().unwrap()),
        }
    }
}

/// The statuses of the unread responses.
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
async fn fifty_clients_that_do_not_read_use_bounded_memory() {
    let service = service_with_many_slots().await;
    let (flooder, other) = (service.account().await.unwrap(), service.account().await.unwrap());
    let (id, honest) = (create_sandbox(&flooder).await, create_sandbox(&other).await);
    let before = service.resident_kb().unwrap();
    let flood = async {
        let mut held = Vec::new();
        for _ in 0..50 {
            held.push(send_without_reading(&service, &flooder, &id, FLOOD, None).await);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        // Both the flooding account and another one can run commands; the other one also gets a large output.
        for (client, id) in [(&flooder, &id), (&other, &honest)] {
            let begun = Instant::now();
            assert_eq!(output(&client.with_own_connections(), id, "echo hello").await, "hello\n");
            assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
        }
        let large = run_command(
            &other.with_own_connections(),
            &honest,
            json!({ "command": "head -c 4000000 /dev/zero | tr '\\0' x" }),
        )
        .await;
        assert_eq!(text(&large["stdout"]).len(), 4_000_000);
        tokio::time::sleep(Duration::from_secs(15)).await;
        held
    };
    let (held, peak_kb) = with_peak_rss(&service, flood).await;
    println!(
        "50 unread responses of 32 MiB: {before} kB before, at most {peak_kb} kB, {} kB now",
        service.resident_kb().unwrap()
    );
    assert!(peak_kb <= MAX_RSS_KB, "{peak_kb} kB");
    let statuses = statuses(held).await;
    println!("statuses: {statuses:?}");
    assert!(statuses.iter().all(|status| [200, 503].contains(status)) && statuses.contains(&200));
    // When the clients disconnect, the memory is released: the largest output fits.
    wait_until("the memory is released", async || {
        let answer = flooder
            .with_own_connections()
            .post(&action_path(&id, "execute"), &json!({ "command": FLOOD }))
            .await
            .unwrap();
        answer.status == 200 && answer.json().unwrap()["stdout"].as_str().unwrap().len() == 16 * MIB
    })
    .await;
}

#[tokio::test]
async fn a_command_whose_output_exceeds_the_memory_budget_is_killed() {
    let options = ServiceOptions::default()
        .with("limits", "buffered_output_bytes", "4194304")
        .with("limits", "buffered_output_bytes_per_account", "4194304")
        .with("limits", "max_output_bytes", "1048576");
    let service = Service::start(&options).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let large = "head -c 1048576 /dev/zero | tr '\\0' '\\1' | tee /dev/stderr; touch /ended; sleep 1";
    // The file behind the sleep: between `touch` and the start of `sleep` no process has that name.
    let first = format!("{large}; touch /slept");
    let _held = send_without_reading(&service, &client, &id, &first, None).await;
    wait_until("the first command has ended", async || {
        output(&client, &id, "ls /slept 2>&1; true").await == "/slept\n"
    })
    .await;
    // It is killed during its output, before the sleep.
    let second = format!("{large}; sleep 60; touch /second");
    let answer = client
        .with_own_connections()
        .post(&action_path(&id, "execute"), &json!({ "command": second }))
        .await
        .unwrap();
    let error: Value = answer.error(503, "RESOURCE_EXHAUSTED").unwrap();
    assert_eq!(answer.header("retry-after"), Some("10"));
    assert_eq!(error["details"]["commandStarted"], true, "{error}");
    assert_eq!(output(&client, &id, "ls /second 2>/dev/null | wc -l; pgrep -c sleep; true").await, "0\n0\n");
    // Truncated output counts with its captured size.
    let result =
        run_command(&client, &id, json!({ "command": "head -c 200000 /dev/zero | tr '\\0' x" })).await;
    assert_eq!(text(&result["stdout"]).len(), 200_000);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idempotent_responses_and_replays_use_bounded_memory() {
    let service = service_with_many_slots().await;
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let flood = async {
        // One after the other, all read, so that six records are stored.
        for number in 0..6 {
            let body = json!({ "command": FLOOD });
            let client = client.with_own_connections();
            let call = client.call(hyper::Method::POST, &action_path(&id, "execute")).json(&body);
            let answer = call.header("idempotency-key", &format!("key-{number}")).send().await.unwrap();
            let result = answer.is(200).unwrap();
            assert_eq!((text(&result["stdout"]).len(), exit_code(&result)), (16 * MIB, 0));
        }
        let mut held = Vec::new();
        for number in 0..30 {
            let key = format!("key-{}", number % 6);
            held.push(send_without_reading(&service, &client, &id, FLOOD, Some(&key)).await);
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        held
    };
    let (held, peak_kb) = with_peak_rss(&service, flood).await;
    let database: u64 = ["store.db", "store.db-wal"]
        .iter()
        .filter_map(|name| std::fs::metadata(service.layout.data.join(name)).ok())
        .map(|file| file.len())
        .sum();
    println!(
        "6 idempotency records, 30 unread replays: at most {peak_kb} kB, database {} MiB",
        database >> 20
    );
    assert!(peak_kb <= MAX_RSS_IDEMPOTENT_KB, "{peak_kb} kB");
    assert!(database < 400 << 20, "{database} bytes");
    let statuses = statuses(held).await;
    assert!(statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
}

fn exit_code(result: &Value) -> u64 {
    number(&result["exitCode"])
}
