use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use hyper::Method;

use crate::proxy::{Fault, Proxy, Seen};
use sandboxd_client::{Code, EventKind, FileBody, Run, Sandbox};

async fn sandbox(proxy: &Proxy) -> Sandbox {
    proxy.client().create("ubuntu:24.04").await.unwrap()
}

fn puts(proxy: &Proxy) -> Vec<Seen> {
    proxy.seen().into_iter().filter(|seen| seen.method == Method::PUT).collect()
}

const BUSY: Fault = Fault::Status { status: 503, code: "RESOURCE_EXHAUSTED", retry_after_s: 0 };

#[tokio::test]
async fn a_repeatable_body_is_retried_from_its_start() {
    let proxy = Proxy::start();
    let files = sandbox(&proxy).await.files();
    let local = tempfile::NamedTempFile::new().unwrap();
    let content: Vec<u8> = (0..1_000_000u32).map(|n| (n % 251) as u8).collect();
    std::fs::write(local.path(), &content).unwrap();
    proxy.inject(Fault::LostAnswer);
    proxy.inject(BUSY);
    files.write("a", FileBody::file(local.path())).await.unwrap();
    let seen = puts(&proxy);
    assert!(seen.len() == 3 && seen.iter().all(|seen| seen.body == content));
    assert!(seen[0].headers.get("content-length").is_none(), "it was measured, and so held, beforehand");
    assert_eq!(files.read("a").await.unwrap(), content);
}

#[tokio::test]
async fn a_consumed_body_is_not_retried() {
    let proxy = Proxy::start();
    let files = sandbox(&proxy).await.files();
    proxy.inject(Fault::LostAnswer);
    let once = futures_util::stream::iter([Ok(Bytes::from_static(b"once"))]);
    let error = files.write("a", FileBody::stream(once)).await.unwrap_err();
    assert_eq!((error.code(), error.repeats(), puts(&proxy).len()), (Code::NetworkError, 0, 1));
    let broken = futures_util::stream::iter([Ok("half".into()), Err(io::Error::other("no more ink"))]);
    let error = files.write("b", FileBody::stream(broken)).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::LocalFile, "no more ink"));
    assert!(!files.exists("b").await.unwrap());
}

#[tokio::test]
async fn streamed_input_is_repeated_only_if_it_had_no_effect() {
    let proxy = Proxy::start();
    let cat = sandbox(&proxy).await.execute("cat").open_stdin().detached().await.unwrap();
    let chunks =
        || futures_util::stream::iter(["one\n", "two\n"].map(|line| Ok::<Bytes, io::Error>(line.into())));
    proxy.inject(BUSY);
    cat.write_stream(chunks).await.unwrap();
    (0..3).for_each(|_| proxy.inject(BUSY));
    let error = cat.write_stream(chunks).await.unwrap_err();
    assert!(error.had_no_effect() && error.repeats() == 2, "{error}");
    proxy.inject(Fault::LostAnswer);
    let error = cat.write_stream(chunks).await.unwrap_err();
    assert!(!error.had_no_effect() && error.repeats() == 0, "{error}");
    let is_input =
        |seen: &Seen| seen.headers.get("content-type").is_some_and(|kind| kind == "application/octet-stream");
    let bodies: Vec<Bytes> = proxy.seen().into_iter().filter(is_input).map(|seen| seen.body).collect();
    assert_eq!(bodies, ["one\ntwo\n"; 6]);
}

/// The request's time is for a silent service, not for a slow source or a long file.
#[tokio::test]
async fn a_slow_upload_source_does_not_time_out() {
    let proxy = Proxy::start();
    let client = proxy.builder().timeout(Duration::from_millis(300)).retries(0).build().unwrap();
    let files = client.create("ubuntu:24.04").await.unwrap().files();
    let slow = futures_util::stream::iter(0..4).then(async |n| {
        tokio::time::sleep(Duration::from_millis(250)).await;
        Ok(Bytes::from(n.to_string()))
    });
    files.write("a", FileBody::stream(slow)).await.unwrap();
    assert_eq!(files.read("a").text().await.unwrap(), "0123");
    proxy.inject(Fault::Silence(Duration::from_secs(20)));
    let error = files.write("b", FileBody::stream(futures_util::stream::empty())).await.unwrap_err();
    assert!(error.message().contains("300 ms"), "{error}");
}

#[tokio::test]
async fn every_request_of_a_run_has_its_id() {
    let proxy = Proxy::start();
    let client = proxy.client();
    let run = Run::with_id("nightly-17");
    let sandbox = client.create("ubuntu:24.04").run(&run).await.unwrap();
    sandbox.execute("true").await.unwrap();
    sandbox.execute("true").stream().await.unwrap().done().await.unwrap();
    sandbox.files().write("a", "a").await.unwrap();
    sandbox.files().read("a").await.unwrap();
    sandbox.pause().await.unwrap();
    sandbox.terminate().await.unwrap();
    let runs: Vec<_> = proxy.seen().iter().map(|seen| seen.headers.get("x-run-id").cloned()).collect();
    assert_eq!(runs.len(), 7);
    assert!(runs.iter().all(|run| run.as_ref().is_some_and(|run| run == "nightly-17")), "{runs:?}");
    client.health().await.unwrap();
    assert!(proxy.seen()[7].headers.get("x-run-id").is_none());
    let nameless = client.create("ubuntu:24.04").run(&Run::with_id("two words")).await;
    assert_eq!(nameless.unwrap_err().code(), Code::Configuration);
}

#[tokio::test]
async fn file_operations_are_recorded_in_a_run() {
    let proxy = Proxy::start();
    let noted = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&noted);
    let run = Run::new().on_event(move |event| {
        let path = event.data.get("path").and_then(|path| path.as_str()).unwrap_or_default().to_owned();
        notes.lock().unwrap().push((event.kind, path));
    });
    let files = sandbox(&proxy).await.with_run(&run).files();
    files.write("a", "a").await.unwrap();
    files.read("a").await.unwrap();
    files.rename("a", "b").await.unwrap();
    files.delete("b").await.unwrap();
    files.read("b").await.unwrap_err();
    use EventKind::*;
    let expected = [
        (FileCreated, "/workspace/a"),
        (FileRead, "a"),
        (FileDeleted, "a"),
        (FileCreated, "/workspace/b"),
        (FileDeleted, "/workspace/b"),
        (FileError, "b"),
        (SandboxError, ""),
    ];
    assert_eq!(*noted.lock().unwrap(), expected.map(|(kind, path)| (kind, path.to_owned())));
}

#[tokio::test]
async fn run_events_are_posted_once() {
    let proxy = Proxy::start();
    let sandbox = sandbox(&proxy).await;
    let run = Run::with_id("r").to_service(&sandbox);
    proxy.inject(Fault::LostAnswer);
    for n in 0..250 {
        run.thinking(&n.to_string());
    }
    sandbox.execute("true").await.unwrap();
    run.delivered().await.unwrap();
    let kept: Vec<_> = sandbox.events().run("r").kinds("agent.*").stream().try_collect().await.unwrap();
    let texts: Vec<_> = kept.iter().map(|event| event.data["text"].as_str().unwrap().to_owned()).collect();
    assert_eq!(texts, (0..250).map(|n| n.to_string()).collect::<Vec<_>>());
    run.thinking(&"x".repeat(20_000));
    run.thinking("after it");
    let error = run.delivered().await.unwrap_err();
    assert!(error.message().contains("16384"), "{error}");
    run.delivered().await.unwrap();
    assert_eq!(sandbox.events().run("r").page(0).await.unwrap().pagination.total, 251);
}

/// More often than a call by itself is repeated, and for longer than it waits.
#[tokio::test]
async fn run_events_are_retried_after_429() {
    let proxy = Proxy::start();
    let client = proxy.builder().max_retry_wait(Duration::ZERO).build().unwrap();
    let sandbox = client.create("ubuntu:24.04").await.unwrap();
    let run = Run::with_id("r").to_service(&sandbox);
    proxy.inject(Fault::Status { status: 429, code: "RATE_LIMITED", retry_after_s: 1 });
    run.thinking("first");
    run.delivered().await.unwrap();
    assert_eq!(sandbox.events().run("r").page(0).await.unwrap().pagination.total, 1);
}

#[tokio::test]
async fn a_followed_stream_survives_connection_faults() {
    let proxy = Proxy::start();
    let sandbox = sandbox(&proxy).await;
    // What others do while the connection of this client is bad.
    let elsewhere = proxy.direct().sandbox(sandbox.id().as_str()).unwrap();
    let mut events = sandbox.events().follow().await.unwrap();
    elsewhere.pause().await.unwrap();
    let paused = events.next().await.unwrap().unwrap();
    assert_eq!(paused.kind, EventKind::SandboxPaused);
    proxy.cut_answers();
    // Five that fail: more than a call by itself is repeated.
    (0..5).for_each(|_| proxy.inject(BUSY));
    elsewhere.resume().await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().kind, EventKind::SandboxResumed);
    let ids: Vec<_> =
        proxy.seen().iter().filter_map(|seen| seen.headers.get("last-event-id").cloned()).collect();
    assert!(ids.len() == 6 && ids.iter().all(|id| *id == paused.id.to_string()), "{ids:?}");
    // It ends before the stream has come back; then the list has the rest.
    proxy.cut_answers();
    elsewhere.pause().await.unwrap();
    elsewhere.terminate().await.unwrap();
    let rest: Vec<EventKind> = events.map(|event| event.unwrap().kind).collect().await;
    assert_eq!(rest, [EventKind::SandboxPaused, EventKind::SandboxTerminated]);
}

#[tokio::test]
async fn an_answer_that_is_cut_is_an_error_and_never_short() {
    let proxy = Proxy::start();
    let sandbox = sandbox(&proxy).await;
    let files = sandbox.files();
    let content = vec![b'x'; 1_000_000];
    files.write("a", content.clone()).await.unwrap();
    proxy.inject(Fault::CutAfter(1000));
    let mut pieces = files.read("a").stream().await.unwrap();
    let error = loop {
        match pieces.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a file that was cut passes for whole"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::NetworkError);
    let local = tempfile::tempdir().unwrap();
    proxy.inject(Fault::CutAfter(1000));
    files.read("a").to_file(local.path().join("a")).await.unwrap_err();
    assert!(!local.path().join("a").exists(), "half a file was left");
    proxy.inject(Fault::CutAfter(10));
    let mut output = sandbox.execute("echo one; sleep 10").stream().await.unwrap();
    let error = loop {
        match output.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("a stream that was cut passes for a command that ended"),
            Err(error) => break error,
        }
    };
    assert_eq!(error.code(), Code::NetworkError);
    // A call whose answer is read whole is repeated.
    proxy.inject(Fault::CutAfter(10));
    assert_eq!(sandbox.refresh().await.unwrap().image, "ubuntu:24.04");
}

#[tokio::test]
async fn a_stream_that_is_refused_ends() {
    let proxy = Proxy::start();
    let client = proxy.client();
    proxy.inject(Fault::Status { status: 403, code: "FORBIDDEN", retry_after_s: 0 });
    assert_eq!(client.events().follow().await.err().unwrap().code(), Code::Forbidden);
    let mut events = client.events().follow().await.unwrap();
    proxy.inject(Fault::Status { status: 401, code: "UNAUTHORIZED", retry_after_s: 0 });
    proxy.cut_answers();
    assert_eq!(events.next().await.unwrap().unwrap_err().code(), Code::Unauthorized);
    assert!(events.next().await.is_none());
}
