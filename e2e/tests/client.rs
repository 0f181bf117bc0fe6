//! The client library against a real service.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "client/events.rs"]
mod events;
#[path = "client/examples.rs"]
mod examples;
#[path = "client/files.rs"]
mod files;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use e2e::wait_until;
use futures_util::{StreamExt, TryStreamExt};
use sandboxd_client::{
    Client, ClientBuilder, Code, EventKind, Failed, Fingerprint, Output, Paused, Run, Terminated,
};
use serde_json::json;

const TIMEOUT: Duration = Duration::from_secs(60);

async fn service() -> Service {
    Service::start(&ServiceOptions::default()).await.unwrap()
}

fn at(service: &Service) -> ClientBuilder {
    Client::builder()
        .url(format!("https://{}", service.address))
        .certificate_file(service.certificate_file().unwrap())
}

/// A client in a new account.
async fn client(service: &Service) -> Client {
    at(service).key(key(service).await).build().unwrap()
}

async fn key(service: &Service) -> String {
    let account = service.account().await.unwrap();
    account.key().to_owned()
}

fn code<T>(result: sandboxd_client::Result<T>) -> Code {
    result.err().unwrap().code()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_is_created_used_and_terminated() {
    let service = service().await;
    let client = client(&service).await;
    assert_eq!(client.health().await.unwrap().status, "ok");
    let sandbox = client
        .create(Service::image())
        .cpu(2)
        .memory_mb(2048)
        .disk_mb(5120)
        .env("GREETING", "hello")
        .workdir("/srv/x")
        .metadata("job", "a b&c=ü")
        .only_domains(["example.com"])
        .await
        .unwrap();
    let known = sandbox.known().unwrap();
    assert_eq!((known.resources.memory_mb, known.metadata["job"].as_str()), (2048, "a b&c=ü"));
    let result =
        sandbox.execute("echo $GREETING $NAME; pwd; cat; exit 3").env("NAME", "you").stdin("in").await;
    let result = result.unwrap();
    assert_eq!((result.stdout.as_str(), result.exit_code), ("hello you\n/srv/x\nin", Some(3)));
    sandbox.execute("sleep 1000 & echo $! > pid").await.unwrap();
    assert_eq!(sandbox.pause().await.unwrap().id, *sandbox.id());
    assert_eq!(code(sandbox.execute("true").without_resume().await), Code::InvalidState);
    sandbox.resume().await.unwrap();
    assert_eq!(sandbox.execute("kill -0 $(cat pid)").await.unwrap().exit_code, Some(0));
    let found = client.list().metadata("job", "a b&c=ü").page(0).await.unwrap();
    assert_eq!(found.data.iter().map(|item| &item.id).collect::<Vec<_>>(), [sandbox.id()]);
    let end = sandbox.terminate().await.unwrap();
    assert_eq!(end.reason, "deleted");
    assert!(end.total_runtime_ms.is_some());
    assert_eq!(code(client.get(sandbox.id().as_str()).await), Code::SandboxNotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_is_streamed_over_all_pages() {
    let service = service().await;
    let client = client(&service).await;
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push(client.create(Service::image()).metadata("page", "yes").await.unwrap());
    }
    let mut listing = client.list().metadata("page", "yes").page_size(2).stream();
    let mut ids = vec![listing.next().await.unwrap().unwrap().id];
    // The new sandbox moves an item from the page that was read to the next page.
    let late = client.create(Service::image()).metadata("page", "yes").await.unwrap();
    ids.extend(listing.map(|item| item.unwrap().id).collect::<Vec<_>>().await);
    let expected: Vec<_> = created.iter().rev().map(|sandbox| sandbox.id().clone()).collect();
    assert_eq!(ids, expected);
    let all: Vec<_> = client.list().stream().try_collect().await.unwrap();
    assert_eq!((all.len(), &all[0].id), (6, late.id()));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_trusted_certificate_is_accepted() {
    let service = service().await;
    let (url, key) = (format!("https://{}", service.address), key(&service).await);
    let fingerprint = Fingerprint::of(&url).await.unwrap();
    let printed = std::process::Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(service.certificate_file().unwrap())
        .output();
    if let Some(printed) = printed.ok().filter(|printed| printed.status.success()) {
        let text = String::from_utf8(printed.stdout).unwrap();
        let digest = text.trim().rsplit('=').next().unwrap().parse();
        assert_eq!(digest, Ok(fingerprint));
    }
    let base = || Client::builder().url(&url).key(&key);
    base().pinned(fingerprint).build().unwrap().list().page(0).await.unwrap();
    let wrong: Fingerprint = "00".repeat(32).parse().unwrap();
    for builder in [base().pinned(wrong), base().system_certificates()] {
        let error = builder.retries(0).build().unwrap().list().page(0).await.unwrap_err();
        assert_eq!((error.code(), error.status()), (Code::NetworkError, None));
        assert!(error.message().contains("certificate"), "{error}");
    }
    let pem = std::fs::read(service.certificate_file().unwrap()).unwrap();
    base().certificate_pem(pem).build().unwrap().list().page(0).await.unwrap();
    // The key file and certificate in the local data directory are enough.
    let local = Client::builder().url(&url).local_data_dir(&service.layout.data).build().unwrap();
    local.list().page(0).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_service_have_their_codes() {
    let service = service().await;
    let client = client(&service).await;
    let sandbox = client.create(Service::image()).await.unwrap();
    let image = Service::image();

    let unauthorized = at(&service).key("sk_wrong").build().unwrap();
    assert_eq!(code(unauthorized.list().page(0).await), Code::Unauthorized);
    let reader = service.client_with_new_key("readers", "read").await.unwrap();
    let reader = at(&service).key(reader.key()).build().unwrap();
    let error = reader.create(image).await.unwrap_err();
    assert_eq!((error.code(), error.status()), (Code::Forbidden, Some(403)));
    assert_eq!(error.details()["scope"], "write");

    assert_eq!(code(client.create(image).cpu(3).await), Code::InvalidConfig);
    assert_eq!(code(client.create("no-such:image").await), Code::InvalidConfig);
    assert_eq!(code(client.list().page_size(1000).page(0).await), Code::InvalidRequest);
    client.create(image).idempotency_key("k").await.unwrap();
    assert_eq!(code(client.create(image).cpu(4).idempotency_key("k").await), Code::InvalidRequest);
    assert_eq!(code(sandbox.execute("x".repeat(65_537)).await), Code::CommandTooLong);
    assert_eq!(code(client.get("sb_00000000").await), Code::SandboxNotFound);
    assert_eq!(code(sandbox.resume().await), Code::InvalidState);
    assert!(sandbox.resume().await.unwrap_err().request_id().is_some_and(|id| service.log().contains(id)));

    let busy: Vec<_> =
        futures_util::future::join_all((0..3).map(|_| sandbox.execute("sleep 30").stream())).await;
    let without_retries = at(&service).key(key(&service).await).retries(0).build().unwrap();
    assert_eq!(
        code(without_retries.sandbox(sandbox.id().as_str()).unwrap().execute("true").await),
        Code::SandboxNotFound
    );
    let error = sandbox.execute("true").killed_on_drop().await.unwrap_err();
    assert_eq!((error.code(), error.retryable(), error.repeats()), (Code::RateLimited, true, 2));
    assert!(error.retry_after().is_some());
    drop(busy);
    service.kill().unwrap();
    assert_eq!(code(client.health().await), Code::NetworkError);
}

#[tokio::test(flavor = "multi_thread")]
async fn output_is_streamed_live_and_complete() {
    let service = service().await;
    let sandbox = client(&service).await.create(Service::image()).await.unwrap();
    let command = "echo first; until [ -e /tmp/go ]; do sleep 0.01; done; echo second >&2; exit 4";
    let mut output = sandbox.execute(command).stream().await.unwrap();
    assert_eq!(output.next().await.unwrap().unwrap(), Output::Stdout("first".into()));
    // The command ends only after this file exists, so the first line was sent while it ran.
    assert_eq!(sandbox.execute("touch /tmp/go").await.unwrap().exit_code, Some(0));
    assert_eq!(output.next().await.unwrap().unwrap(), Output::Stderr("second".into()));
    let Output::Done(done) = output.next().await.unwrap().unwrap() else { panic!() };
    assert_eq!((done.exit_code, done.signal), (Some(4), None));
    assert!(output.next().await.is_none());

    let lines: Vec<Output> =
        sandbox.execute("seq 1 100000").stream().await.unwrap().try_collect().await.unwrap();
    assert_eq!(lines.len(), 100_001);
    assert!(lines.iter().take(100_000).zip(1..).all(|(line, n)| *line == Output::Stdout(n.to_string())));
    let long =
        sandbox.execute("head -c 200000 /dev/zero | tr '\\0' x; printf 'a\\rb'").stream().await.unwrap();
    let text: String = long
        .map(|event| if let Output::Stdout(text) = event.unwrap() { text } else { String::new() })
        .collect()
        .await;
    assert_eq!(text, "x".repeat(200_000) + "a\rb");
    let killed = sandbox.execute("kill -9 $$").stream().await.unwrap().done().await.unwrap();
    assert_eq!((killed.exit_code, killed.signal.as_deref()), (None, Some("SIGKILL")));
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_commands_are_killed_unless_they_have_a_key() {
    let service = service().await;
    let sandbox = client(&service).await.create(Service::image()).await.unwrap();
    let is_sleeping = |seconds: &'static str| {
        let sandbox = sandbox.clone();
        async move {
            let command = format!("grep -lsz '^{seconds}$' /proc/[0-9]*/cmdline | wc -l");
            sandbox.execute(command).await.unwrap().stdout.trim() != "0"
        }
    };
    let timeout = Duration::from_millis(300);
    let stream = sandbox.execute("sleep 4711").stream().await.unwrap();
    drop(stream);
    assert!(tokio::time::timeout(timeout, sandbox.execute("sleep 4712").killed_on_drop()).await.is_err());
    let begin = Instant::now();
    while is_sleeping("4711").await || is_sleeping("4712").await {
        assert!(begin.elapsed() < TIMEOUT, "a dropped command still runs");
    }
    let kept = sandbox.execute("sleep 4713").timeout(Duration::from_secs(20));
    assert!(tokio::time::timeout(timeout, kept).await.is_err());
    assert!(is_sleeping("4713").await, "a command with an idempotency key was killed");
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_and_commands_are_retried_when_the_daemon_is_killed() {
    let service = service().await;
    let key = key(&service).await;
    let client = at(&service).key(key).retries(8).build().unwrap();
    let sandbox = client.create(Service::image()).await.unwrap();
    for _ in 0..3 {
        let create = tokio::spawn(client.create(Service::image()).metadata("created", "once").into_future());
        tokio::time::sleep(Duration::from_millis(3)).await;
        service.kill().unwrap();
        service.start_process().await.unwrap();
        create.await.unwrap().unwrap();
    }
    let list = client.list().metadata("created", "once").page(0).await.unwrap();
    assert_eq!(list.pagination.total, 3);
    service.kill().unwrap();
    let command = tokio::spawn(sandbox.execute("echo alive").into_future());
    service.start_process().await.unwrap();
    assert_eq!(command.await.unwrap().unwrap().stdout, "alive\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_terminates_its_sandbox_however_its_scope_ends() {
    let service = service().await;
    let client = client(&service).await;
    let running = async || {
        let list = client.list().state(sandboxd_client::SandboxState::Running);
        list.page(0).await.unwrap().pagination.total
    };
    drop(client.create(Service::image()).await.unwrap().terminate_on_drop());
    assert_eq!(running().await, 0);
    let guard = client.create(Service::image()).await.unwrap().terminate_on_drop();
    let panicked = tokio::spawn(async move {
        guard.execute("true").await.unwrap();
        panic!("intended by the test");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    assert_eq!(running().await, 0);
    let kept = client.create(Service::image()).await.unwrap().terminate_on_drop().keep();
    assert_eq!(running().await, 1);
    kept.terminate().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_and_runs_receive_lifecycle_events() {
    let service = service().await;
    let client = client(&service).await;
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let recorder = |calls: &Arc<Mutex<Vec<String>>>| {
        let calls = Arc::clone(calls);
        move |text: String| calls.lock().unwrap().push(text)
    };
    let (paused, ended, failed) = (recorder(&calls), recorder(&calls), recorder(&calls));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("run.jsonl");
    let run = Run::with_id("nightly").to_file(&file).unwrap();
    let sandbox = client
        .create(Service::image())
        .timeout(Duration::from_millis(1500))
        .run(&run)
        .on(move |_: &Paused| paused("paused".into()))
        .on(move |end: &Terminated| ended(end.reason.clone()))
        .on(move |error: &Failed| failed(error.error.code_name().into()))
        .await
        .unwrap();
    sandbox.execute("echo hi").await.unwrap();
    run.tool_call("shell", json!({"command": "ls"}));
    sandbox.pause().await.unwrap();
    sandbox.resume().await.unwrap();
    wait_until("the sandbox is terminated at its timeout", async || sandbox.refresh().await.is_err()).await;
    assert_eq!(*calls.lock().unwrap(), ["paused", "timeout", "SANDBOX_NOT_FOUND"]);
    run.finish().unwrap();
    let text = std::fs::read_to_string(file).unwrap();
    let events: Vec<sandboxd_client::RuntimeEvent> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    use EventKind::*;
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    let expected = [
        SandboxCreated,
        SandboxStarted,
        ExecStarted,
        ExecCompleted,
        AgentToolCall,
        SandboxPaused,
        SandboxResumed,
        SandboxTerminated,
        SandboxError,
    ];
    assert_eq!(kinds, expected);
    let completed = &events[3];
    assert_eq!((completed.run_id.as_str(), completed.sandbox_id.as_ref()), ("nightly", Some(sandbox.id())));
    assert!(completed.data["command"] == "echo hi" && completed.data["durationMs"].is_u64());
}
