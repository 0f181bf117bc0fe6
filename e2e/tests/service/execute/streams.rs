//! Streams of commands: framing, order, back-pressure, and disconnects of either side.

use std::time::{Duration, Instant};

use e2e::service::{Client, Event, Events, Service, ServiceOptions};
use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::{action_path, create_sandbox, keys, number, output, user, wait_until};

async fn stream(client: &Client, id: &str, body: &Value) -> Events {
    client.call(Method::POST, &action_path(id, "execute")).json(body).stream().await.unwrap()
}

async fn run_to_end(client: &Client, id: &str, command: &str) -> Vec<Event> {
    stream(client, id, &json!({ "command": command })).await.rest().await.unwrap()
}

fn lines<'a>(events: &'a [Event], name: &str) -> Vec<&'a str> {
    events.iter().filter(|event| event.name == name).map(|event| event.data.as_str()).collect()
}

fn done(events: &[Event]) -> Value {
    let last = events.last().unwrap();
    assert_eq!(last.name, "done", "{last:?}");
    assert_eq!(events.iter().filter(|event| event.name == "done").count(), 1);
    let done = last.json().unwrap();
    // A command that ends by itself has no reason for it.
    match done.get("reason") {
        None => assert_eq!(keys(&done), ["durationMs", "exitCode", "signal"]),
        Some(_) => assert_eq!(keys(&done), ["durationMs", "exitCode", "message", "reason", "signal"]),
    }
    number(&done["durationMs"]);
    done
}

#[tokio::test]
async fn each_line_is_an_event_and_done_is_last() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let events =
        run_to_end(&client, &id, "echo one; echo; echo '  two  '; echo err >&2; printf three; exit 5").await;
    assert_eq!(lines(&events, "stdout"), ["one", "", "  two  ", "three"]);
    assert_eq!(lines(&events, "stderr"), ["err"]);
    let done = done(&events);
    assert_eq!((&done["exitCode"], &done["signal"]), (&json!(5), &Value::Null));
    let events = run_to_end(&client, &id, "true").await;
    assert_eq!(events.len(), 1, "{events:?}");
}

#[tokio::test]
async fn data_cannot_break_out_of_its_event() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let command = "echo 'data: x'; echo 'event: done'; echo ': comment'; echo 'id: 5'; printf 'a\\rb\\r\\nc\\n'; echo ' lead'";
    let events = run_to_end(&client, &id, command).await;
    assert_eq!(
        lines(&events, "stdout"),
        ["data: x", "event: done", ": comment", "id: 5", "a\nb", "c", " lead"]
    );
    done(&events);
    let events = run_to_end(&client, &id, "printf 'bad \\xff utf\\n\\xe2\\x82'; printf '\\0nul\\n'").await;
    assert_eq!(lines(&events, "stdout"), ["bad \u{fffd} utf", "\u{fffd}\0nul"]);
}

#[tokio::test]
async fn a_long_line_is_split() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let events = run_to_end(&client, &id, "head -c 200000 /dev/zero | tr '\\0' x; echo; echo short").await;
    let pieces = lines(&events, "stdout");
    assert!(pieces.len() >= 5 && pieces.iter().all(|piece| piece.len() <= 65_536), "{} pieces", pieces.len());
    assert_eq!(pieces[..pieces.len() - 1].concat(), "x".repeat(200_000));
    assert_eq!(pieces.last(), Some(&"short"));
}

#[tokio::test]
async fn both_streams_are_complete_and_each_in_order() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let events = run_to_end(&client, &id, "seq 1 20000 & seq 1 10000 >&2; wait").await;
    let numbers =
        |name: &str| lines(&events, name).iter().map(|line| line.parse::<u32>().unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers("stdout"), (1..=20_000).collect::<Vec<_>>());
    assert_eq!(numbers("stderr"), (1..=10_000).collect::<Vec<_>>());
    done(&events);
}

#[tokio::test]
async fn lines_are_streamed_when_they_are_written() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let mut events = stream(&client, &id, &json!({ "command": "echo first; sleep 1.5; echo second" })).await;
    let begin = Instant::now();
    assert_eq!(events.next().await.unwrap().unwrap().data, "first");
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_eq!(events.next().await.unwrap().unwrap().data, "second");
    assert!(begin.elapsed() >= Duration::from_millis(1_300));
}

#[tokio::test]
async fn timeouts_signals_and_failed_starts_are_reported() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let body = json!({ "command": "echo partial; sleep 600", "timeoutMs": 500 });
    let events = stream(&client, &id, &body).await.rest().await.unwrap();
    assert_eq!(lines(&events, "stdout"), ["partial"]);
    let end = done(&events);
    assert_eq!((&end["exitCode"], &end["signal"]), (&Value::Null, &json!("SIGKILL")));
    assert_eq!(end["reason"], "timeout");
    assert_eq!(end["message"], "the command was killed at its timeoutMs of 500");
    let end = done(&run_to_end(&client, &id, "kill -TERM $$").await);
    assert_eq!((&end["exitCode"], &end["signal"]), (&Value::Null, &json!("SIGTERM")));
    let body = json!({ "command": "true", "cwd": "/no/such/place" });
    let events = stream(&client, &id, &body).await.rest().await.unwrap();
    assert!(lines(&events, "stderr").concat().contains("/no/such/place"), "{events:?}");
    let end = done(&events);
    assert_eq!((&end["exitCode"], &end["signal"]), (&Value::Null, &Value::Null));
}

/// When a client disconnects, its command ends with all processes, and its slot is free.
#[tokio::test]
async fn a_client_that_disconnects_ends_its_command() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let beat = |n: u32| {
        format!(
            "(setsid bash -c 'while :; do date +%s%N > /beat{n}; sleep 0.02; done') & echo begun; sleep 600"
        )
    };
    for _ in 0..2 {
        let mut streams = Vec::new();
        for n in 0..3 {
            let mut events =
                stream(&client.with_own_connections(), &id, &json!({ "command": beat(n) })).await;
            assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
            streams.push(events);
        }
        let answer = client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
        answer.error(429, "RATE_LIMITED").unwrap();
        drop(streams);
        wait_until("the slots are free", async || {
            let answer =
                client.post(&action_path(&id, "execute"), &json!({ "command": "true" })).await.unwrap();
            answer.status == 200
        })
        .await;
        let still = "for n in 0 1 2; do a=$(cat /beat$n); sleep 0.2; [ \"$a\" = \"$(cat /beat$n)\" ] || echo $n; done";
        wait_until("the commands have ended", async || output(&client, &id, still).await.is_empty()).await;
    }
}

/// The same holds for a buffered command.
#[tokio::test]
async fn a_client_that_disconnects_ends_a_buffered_command() {
    let (service, client) = user().await;
    let id = create_sandbox(&client).await;
    let body =
        json!({ "command": "while :; do date +%s%N > /next; mv /next /beat; sleep 0.02; done" }).to_string();
    let request = format!(
        "POST {} HTTP/1.1\r\nHost: x\r\nAuthorization: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        action_path(&id, "execute"),
        client.authorization(),
        body.len()
    );
    let mut raw = service.raw().await.unwrap();
    assert!(raw.write(request.as_bytes()).await);
    wait_until("the command has begun", async || {
        output(&client, &id, "ls /beat 2>/dev/null; true").await == "/beat\n"
    })
    .await;
    drop(raw);
    wait_until("the command has ended", async || {
        let printed = output(&client, &id, "cat /beat; sleep 0.3; cat /beat").await;
        let beats: Vec<&str> = printed.lines().collect();
        beats.len() == 2 && beats[0] == beats[1]
    })
    .await;
}

/// When a client stops reading, its command blocks; the server does not buffer the output.
#[tokio::test]
async fn a_slow_reader_blocks_the_command_and_uses_no_memory() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    output(&client, &id, "true").await;
    let before = service.resident_kb().unwrap();
    let line = "x".repeat(99);
    let command = format!("n=0; while :; do echo {line}; n=$((n+1)); echo $n > /progress; done");
    // Two streams, so that one slot is left for `output`.
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut events = stream(&client.with_own_connections(), &id, &json!({ "command": command })).await;
        events.next().await.unwrap().unwrap();
        streams.push(events);
    }
    let mut last = String::new();
    wait_until("the command is blocked", async || {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let now = output(&client, &id, "cat /progress").await;
        let still = now == last && !now.trim().is_empty();
        last = now;
        still
    })
    .await;
    let grown = service.resident_kb().unwrap().saturating_sub(before);
    assert!(grown < 20_000, "{grown} kB more for two readers that do not read");
    // Read on, and it goes on.
    for _ in 0..200_000 {
        assert_eq!(streams[0].next().await.unwrap().unwrap().data, line);
    }
    let now = output(&client, &id, "cat /progress").await;
    assert_ne!(now, last);
}

#[tokio::test]
async fn a_hundred_thousand_lines_are_streamed_within_seconds() {
    let (_service, client) = user().await;
    let id = create_sandbox(&client).await;
    let begin = Instant::now();
    let events = run_to_end(&client, &id, &format!("yes {} | head -n 100000", "x".repeat(99))).await;
    assert_eq!(events.len(), 100_001);
    // The bound of a second is a matter for the benchmark, on a quiet machine.
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

/// On SIGTERM, streams end with an `error` event that has the error object; the sandbox continues.
#[tokio::test]
async fn a_stopping_service_ends_streams_with_an_error() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    output(&client, &id, "touch /kept; sleep 600 > /dev/null 2>&1 & echo $! > /pid").await;
    let mut events =
        stream(&client.with_own_connections(), &id, &json!({ "command": "echo begun; sleep 600" })).await;
    assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
    let request_id = events.headers["x-request-id"].to_str().unwrap().to_owned();
    service.signal(Signal::TERM).unwrap();
    let rest = events.rest().await.unwrap();
    assert_eq!(rest.len(), 1, "{rest:?}");
    assert_eq!(rest[0].name, "error");
    let error = rest[0].json().unwrap();
    assert_eq!(keys(&error), ["code", "details", "message", "requestId"]);
    assert_eq!(error["requestId"], request_id.as_str());
    assert_eq!(error["code"], "RESOURCE_EXHAUSTED");
    let begin = Instant::now();
    assert!(service.wait_for_exit(Duration::from_secs(35)).await.unwrap().success());
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    service.start_process().await.unwrap();
    let client = client.with_own_connections();
    assert_eq!(output(&client, &id, "ls /kept; kill -0 $(cat /pid) && echo alive").await, "/kept\nalive\n");
}

/// A buffered command that runs when the service is stopped is finished and answered.
#[tokio::test]
async fn a_stopping_service_finishes_buffered_commands() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let client = service.account().await.unwrap();
    let id = create_sandbox(&client).await;
    let running = {
        let (client, path) = (client.with_own_connections(), action_path(&id, "execute"));
        let body = json!({ "command": "touch /begun; sleep 1.5; echo finished" });
        tokio::spawn(async move { client.post(&path, &body).await.unwrap() })
    };
    wait_until("the command has begun", async || {
        output(&client, &id, "ls /begun 2>/dev/null; true").await == "/begun\n"
    })
    .await;
    service.signal(Signal::TERM).unwrap();
    let result = running.await.unwrap().is(200).unwrap();
    assert_eq!(result["stdout"], "finished\n");
    assert!(service.wait_for_exit(Duration::from_secs(35)).await.unwrap().success());
}
