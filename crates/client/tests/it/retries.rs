use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::proxy::{Fault, Proxy, Seen};
use sandboxd_client::{Code, EventKind, Failed, Resumed, Run, SandboxState, Terminated};

fn refusal(status: u16, code: &'static str) -> Fault {
    Fault::Status { status, code, retry_after_s: 0 }
}

fn keys(seen: &[Seen]) -> Vec<Option<String>> {
    let key = |seen: &Seen| Some(seen.headers.get("idempotency-key")?.to_str().unwrap().to_owned());
    seen.iter().map(key).collect()
}

#[tokio::test]
async fn a_create_with_a_lost_response_creates_one_sandbox() {
    let proxy = Proxy::start();
    proxy.inject(Fault::LostAnswer);
    proxy.inject(refusal(503, "RESOURCE_EXHAUSTED"));
    let client = proxy.client();
    let sandbox = client.create("ubuntu:24.04").await.unwrap();
    let seen = proxy.seen();
    let keys = keys(&seen);
    assert_eq!(keys.len(), 3);
    assert!(keys[0].is_some() && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    let page = client.list().page(0).await.unwrap();
    assert_eq!(page.data.iter().map(|item| &item.id).collect::<Vec<_>>(), [sandbox.id()]);
}

#[tokio::test]
async fn without_waiting_a_capacity_error_is_returned_at_once() {
    let proxy = Proxy::start();
    let client = proxy.client();
    proxy.inject(refusal(503, "RESOURCE_EXHAUSTED"));
    let error = client.create("ubuntu:24.04").without_waiting().await.unwrap_err();
    assert_eq!((error.code(), error.repeats(), proxy.seen().len()), (Code::ResourceExhausted, 0, 1));
    // Other faults are none that anybody could wait for better.
    proxy.inject(refusal(429, "RATE_LIMITED"));
    proxy.inject(Fault::LostAnswer);
    client.create("ubuntu:24.04").without_waiting().await.unwrap();
    assert_eq!(proxy.seen().len(), 4);
}

#[tokio::test]
async fn two_creates_never_share_a_key() {
    let proxy = Proxy::start();
    let client = proxy.client();
    client.create("ubuntu:24.04").await.unwrap();
    client.create("ubuntu:24.04").await.unwrap();
    let keys = keys(&proxy.seen());
    assert_ne!(keys[0], keys[1]);
}

#[tokio::test]
async fn after_two_retries_the_error_is_returned() {
    let proxy = Proxy::start();
    (0..3).for_each(|_| proxy.inject(refusal(500, "INTERNAL_ERROR")));
    let error = proxy.client().list().page(0).await.unwrap_err();
    assert_eq!((error.code(), error.repeats(), proxy.seen().len()), (Code::InternalError, 2, 3));
    let none = proxy.builder().retries(0).build().unwrap();
    proxy.inject(refusal(500, "INTERNAL_ERROR"));
    assert_eq!(none.health().await.unwrap_err().repeats(), 0);
}

#[tokio::test]
async fn a_command_runs_once_however_often_it_is_sent() {
    let proxy = Proxy::start();
    let sandbox = proxy.client().create("ubuntu:24.04").await.unwrap();
    proxy.inject(Fault::LostAnswer);
    assert_eq!(sandbox.execute("echo a").await.unwrap().stdout, "a\n");
    executed(&proxy, 1).await;
    assert_eq!(proxy.seen().len(), 3);
    // Whether it ran is not known: the caller decides.
    proxy.inject(refusal(502, "EXECUTION_ERROR"));
    assert_eq!(sandbox.execute("echo a").await.unwrap_err().code(), Code::ExecutionError);
    proxy.inject(Fault::LostAnswer);
    let error = sandbox.execute("echo a").killed_on_drop().await.unwrap_err();
    assert_eq!((error.code(), error.repeats()), (Code::NetworkError, 0));
    proxy.inject(Fault::LostAnswer);
    let error = sandbox.execute("echo a").stream().await.err().unwrap();
    assert_eq!((error.code(), error.repeats()), (Code::NetworkError, 0));
    executed(&proxy, 3).await;
}

#[tokio::test]
async fn retry_after_is_respected() {
    let proxy = Proxy::start();
    proxy.inject(Fault::Status { status: 429, code: "RATE_LIMITED", retry_after_s: 1 });
    let begin = Instant::now();
    proxy.client().health().await.unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(1));
    proxy.inject(Fault::Status { status: 429, code: "RATE_LIMITED", retry_after_s: 50 });
    let error = proxy.client().health().await.unwrap_err();
    assert_eq!((error.code(), error.retry_after()), (Code::RateLimited, Some(Duration::from_secs(50))));
    assert!(error.retryable() && begin.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_client_can_wait_for_limits_as_long_as_the_service_asks() {
    let proxy = Proxy::start();
    let limited = |retry_after_s| Fault::Status { status: 429, code: "RATE_LIMITED", retry_after_s };
    let heard = Arc::new(Mutex::new(Vec::new()));
    let waits = Arc::clone(&heard);
    let client = proxy
        .builder()
        .retries(0)
        .limit_wait(Duration::from_secs(5))
        .on_limit_wait(move |error, pause| waits.lock().unwrap().push((error.code(), pause.as_secs())))
        .build()
        .unwrap();
    // Not counted as retries, of which there are none.
    (0..3).for_each(|_| proxy.inject(limited(1)));
    client.health().await.unwrap();
    assert_eq!(*heard.lock().unwrap(), [(Code::RateLimited, 1); 3]);
    proxy.inject(limited(6));
    let error = client.health().await.unwrap_err();
    assert_eq!((error.code(), error.waited()), (Code::RateLimited, Duration::ZERO));
    [1, 5].into_iter().for_each(|seconds| proxy.inject(limited(seconds)));
    let waited = client.health().await.unwrap_err().waited();
    assert!((Duration::from_secs(1)..Duration::from_secs(2)).contains(&waited), "{waited:?}");
    proxy.inject(limited(1));
    let error = client.without_limit_waits().health().await.unwrap_err();
    assert_eq!((error.code(), heard.lock().unwrap().len()), (Code::RateLimited, 4));
}

#[tokio::test]
async fn the_command_timeout_is_added_to_the_request_timeout() {
    let proxy = Proxy::start();
    let client = proxy.builder().timeout(Duration::from_millis(200)).retries(0).build().unwrap();
    proxy.inject(Fault::Silence(Duration::from_secs(20)));
    let error = client.health().await.unwrap_err();
    assert_eq!((error.code(), error.status()), (Code::NetworkError, None));
    assert!(error.message().contains("200 ms"), "{error}");
    let sandbox = client.create("ubuntu:24.04").await.unwrap();
    assert_eq!(sandbox.execute("sleep 0.4").await.unwrap().exit_code, Some(0));
    let limited = sandbox.execute("sleep 60").timeout(Duration::from_millis(300)).await.unwrap();
    assert_eq!(limited.signal.as_deref(), Some("SIGKILL"));
}

#[tokio::test]
async fn a_terminate_with_a_lost_response_succeeds() {
    let proxy = Proxy::start();
    let sandbox = proxy.client().create("ubuntu:24.04").await.unwrap();
    proxy.inject(Fault::LostAnswer);
    let end = sandbox.terminate().await.unwrap();
    assert_eq!(end, Terminated { reason: "deleted".into(), total_runtime_ms: None, terminated_at: None });
    // A first answer that says so is none of our doing.
    assert_eq!(sandbox.terminate().await.unwrap_err().code(), Code::SandboxNotFound);
}

#[tokio::test]
async fn a_pause_with_a_lost_response_is_an_error() {
    let proxy = Proxy::start();
    let sandbox = proxy.client().create("ubuntu:24.04").await.unwrap();
    proxy.inject(Fault::LostAnswer);
    assert_eq!(sandbox.pause().await.unwrap_err().code(), Code::NetworkError);
    proxy.inject(refusal(500, "INTERNAL_ERROR"));
    sandbox.resume().await.unwrap();
    assert_eq!(sandbox.refresh().await.unwrap().state, SandboxState::Running);
}

#[tokio::test]
async fn each_subscriber_gets_each_event_once() {
    let proxy = Proxy::start();
    let told = Arc::new(Mutex::new(Vec::new()));
    let note = |text: &'static str| {
        let told = Arc::clone(&told);
        move || told.lock().unwrap().push(text)
    };
    let (resumed, ended, failed) = (note("resumed"), note("terminated"), note("error"));
    let sandbox = proxy.client().create("ubuntu:24.04").await.unwrap();
    sandbox.on(move |_: &Resumed| resumed());
    sandbox.on(move |_: &Terminated| ended());
    sandbox.on(move |_: &Failed| failed());
    sandbox.pause().await.unwrap();
    sandbox.resume().await.unwrap();
    sandbox.terminate().await.unwrap();
    assert!(sandbox.refresh().await.is_err());
    assert_eq!(*told.lock().unwrap(), ["resumed", "terminated", "error"]);
}

#[tokio::test]
async fn a_run_records_calls_and_their_errors() {
    let proxy = Proxy::start();
    let kinds = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&kinds);
    let run = Run::with_id("r").on_event(move |event| seen.lock().unwrap().push(event.kind));
    let sandbox = proxy.client().create("ubuntu:24.04").run(&run).await.unwrap();
    sandbox.execute("true").stream().await.unwrap().done().await.unwrap();
    sandbox.terminate().await.unwrap();
    sandbox.execute("true").await.unwrap_err();
    use EventKind::*;
    let expected = [
        SandboxCreated,
        SandboxStarted,
        ExecStarted,
        ExecStreamed,
        ExecCompleted,
        SandboxTerminated,
        ExecStarted,
        ExecError,
        SandboxError,
    ];
    assert_eq!(*kinds.lock().unwrap(), expected);
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    let proxy = Proxy::start();
    proxy.inject(refusal(418, "TEAPOT"));
    let error = proxy.client().health().await.unwrap_err();
    assert_eq!((error.code(), error.code_name(), error.status()), (Code::Unknown, "TEAPOT", Some(418)));
    let nobody =
        sandboxd_client::Client::builder().url("http://127.0.0.1:9").key("k").retries(1).build().unwrap();
    let error = nobody.health().await.unwrap_err();
    assert_eq!((error.code(), error.repeats()), (Code::NetworkError, 1));
    assert!(error.to_string().contains("http://127.0.0.1:9"), "{error}");
}

/// How many commands the service has run.
async fn executed(proxy: &Proxy, expected: u64) {
    let mut count = 0;
    for _ in 0..500 {
        let events = proxy.direct().events().kind(EventKind::ExecCompleted);
        count = events.page(0).await.unwrap().pagination.total;
        if count >= expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(count, expected);
}
