//! The daemon as its operator meets it: starts, the first key, keys while it runs, one daemon a directory, its end, its metrics.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Whatever ports are free.
const ANYWHERE: [&str; 7] = [
    "serve",
    "--listen",
    "127.0.0.1:0",
    "--redirect-listen",
    "127.0.0.1:0",
    "--metrics-listen",
    "127.0.0.1:0",
];
const STOPS_WITHIN: Duration = Duration::from_secs(20);
/// A revocation works within a second; a machine under load may take a little longer to notice.
const REVOKED_WITHIN: Duration = Duration::from_secs(2);

fn key_file(service: &Service) -> PathBuf {
    service.place.data.join("local.key")
}

fn first_key(service: &Service) -> String {
    std::fs::read_to_string(key_file(service)).unwrap().trim().to_owned()
}

fn sandboxd(service: &Service, arguments: &[&str]) -> Output {
    service.program().unwrap().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A daemon that a test started itself, and that does not outlive it.
struct Daemon(Child);

impl Daemon {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap())
    }

    fn stop(mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // One that has ended has nothing left to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn stop(service: &Service) {
    service.signal(Signal::TERM).unwrap();
    assert!(service.gone(STOPS_WITHIN).await.unwrap().success(), "{}", service.end_of_log());
}

async fn sandbox(service: &Service, key: &str) -> String {
    let client = service.client(key).unwrap();
    let body = client.post("/v1/sandboxes", &json!({ "image": Service::image() })).await.unwrap();
    body.is(201).unwrap()["id"].as_str().unwrap().to_owned()
}

async fn run(service: &Service, key: &str, id: &str, command: &str) -> Value {
    let client = service.client(key).unwrap();
    let path = format!("/v1/sandboxes/{id}/execute");
    client.post(&path, &json!({ "command": command })).await.unwrap().is(200).unwrap()
}

/// The log, once so many starts have said that they are ready: a request may be answered a moment before that.
async fn welcomes(service: &Service, count: usize) -> String {
    let begin = Instant::now();
    loop {
        let said = service.log();
        if said.matches("sandboxd is ready at").count() == count {
            return said;
        }
        assert!(begin.elapsed() < STOPS_WITHIN, "{said}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The first start makes a key that only root can read and says it once; it works, and what runs outlives a stop.
#[tokio::test]
async fn a_first_and_a_second_start() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    assert_eq!(std::fs::metadata(key_file(&service)).unwrap().permissions().mode() & 0o7777, 0o600);
    let said = welcomes(&service, 1).await;
    assert!(said.contains(&format!("sandboxd is ready at https://{}\n", service.address)), "{said}");
    assert_eq!(said.matches(&key).count(), 1, "{said}");

    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "echo kept > /workspace/file; sleep 300 > /dev/null 2>&1 &").await;
    stop(&service).await;
    let begin = Instant::now();
    service.boot().await.unwrap();
    let took = begin.elapsed();
    assert!(took < Duration::from_secs(3), "the second start took {took:?}");
    assert_eq!(first_key(&service), key);
    let said = welcomes(&service, 2).await;
    assert_eq!(said.matches(&key).count(), 1, "the key was printed again: {said}");
    assert_eq!(said.matches("/local.key\n").count(), 2, "{said}");
    let result = run(&service, &key, &id, "cat /workspace/file; pgrep -c sleep").await;
    assert_eq!(result["stdout"], "kept\n1\n");
}

/// A file that was removed is not made again, and one that the store does not know is made valid.
#[tokio::test]
async fn the_first_key_is_made_once_and_kept() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    stop(&service).await;
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(service.place.data.join(file));
    }
    service.boot().await.unwrap();
    assert_eq!(first_key(&service), key);
    let client = service.client(&key).unwrap();
    assert_eq!(client.get("/v1/sandboxes").await.unwrap().status, 200);
    stop(&service).await;
    std::fs::remove_file(key_file(&service)).unwrap();
    service.boot().await.unwrap();
    assert!(!key_file(&service).exists());
    assert_eq!(client.get("/v1/sandboxes").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_second_daemon_is_told_who_has_the_directory() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let output = sandboxd(&service, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let pid = service.pid().unwrap();
    assert!(said.contains(&format!("another sandboxd (process {pid})")), "{said}");
    assert!(said.contains("--data-dir"), "{said}");
    // The first one does not mind.
    assert_eq!(service.anonymous().unwrap().get("/v1/health").await.unwrap().status, 200);
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let _taken = std::net::TcpListener::bind(service.address).unwrap();
    let output = sandboxd(&service, &["serve"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("http.listen") && said.contains(&service.address.to_string()), "{said}");
}

/// Keys made, listed and revoked beside a server that runs.
#[tokio::test]
async fn keys_come_and_go_while_the_server_runs() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let output = sandboxd(
        &service,
        &["key", "create", "--account", "team", "--scopes", "execute,read", "--label", "for tests"],
    );
    let printed = stdout(&output);
    let key = printed.trim();
    assert_eq!(printed, format!("{key}\n"), "something but the key was printed");
    assert!(key.starts_with("sbk_"), "{key}");

    let listed: Value =
        serde_json::from_str(&stdout(&sandboxd(&service, &["key", "list", "--json"]))).unwrap();
    let keys = listed.as_array().unwrap();
    assert_eq!(keys.len(), 2);
    let made = keys.iter().find(|key| key["account"] == "team").unwrap();
    assert_eq!(made["scopes"], json!(["read", "execute"]));
    assert_eq!(made["label"], "for tests");
    assert_eq!(made["revokedAt"], Value::Null);
    assert!(key.starts_with(made["begins"].as_str().unwrap()));
    let id = made["id"].as_str().unwrap();
    let table = stdout(&sandboxd(&service, &["key", "list"]));
    assert!(table.lines().any(|line| line.starts_with(id) && line.ends_with("for tests")), "{table}");
    assert!(!table.contains(key) && !listed.to_string().contains(key), "a list shows a key");

    let client = service.client(key).unwrap();
    becomes(&client, 200).await;
    assert_eq!(client.delete("/v1/sandboxes/sb_none").await.unwrap().status, 403);
    stdout(&sandboxd(&service, &["key", "revoke", id]));
    becomes(&client, 401).await;
    // A second time changes nothing; an id that is none is named.
    stdout(&sandboxd(&service, &["key", "revoke", id]));
    let output = sandboxd(&service, &["key", "revoke", "key_none"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("key_none"));
    assert!(!output.status.success());
}

async fn becomes(client: &e2e::service::Client, status: u16) {
    let begin = Instant::now();
    while client.get("/v1/sandboxes").await.unwrap().status != status {
        assert!(begin.elapsed() < REVOKED_WITHIN, "it does not become {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Without a server too; then they hold from its start on.
#[tokio::test]
async fn a_key_made_before_the_first_start_takes_the_place_of_the_first_key() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let key = service.key("mine", "admin").unwrap();
    service.boot().await.unwrap();
    assert!(!key_file(&service).exists());
    assert_eq!(service.client(&key).unwrap().get("/v1/sandboxes").await.unwrap().status, 200);
}

#[tokio::test]
async fn mistakes_in_keys_are_named() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    for (arguments, words) in [
        (["--account", "a", "--scopes", "fly"], ["fly", "read, execute, write, admin"]),
        (["--account", "a b", "--scopes", "read"], ["a b", "letters"]),
        (["--account", "", "--scopes", "read"], ["\"\"", "1 to 64"]),
    ] {
        let output = sandboxd(&service, &[&["key", "create"][..], &arguments[..]].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.iter().all(|word| said.contains(word)), "{said}");
        assert!(output.stdout.is_empty());
    }
}

/// A stream that is open when the daemon is told to stop is told so; a stop does not take the whole grace then.
#[tokio::test]
async fn a_stop_tells_streams_and_is_over_soon() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    let client = service.client(&key).unwrap();
    let path = format!("/v1/sandboxes/{id}/execute");
    let body = json!({ "command": "echo begun; sleep 60" });
    let call = client.call(hyper::Method::POST, &path).json(&body);
    let mut events = call.stream().await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().data, "begun");
    service.signal(Signal::TERM).unwrap();
    let last = events.rest().await.unwrap().pop().unwrap();
    assert_eq!(last.name, "error", "{last:?}");
    assert!(last.json().unwrap()["message"].as_str().unwrap().contains("stop"), "{last:?}");
    assert!(service.gone(STOPS_WITHIN).await.unwrap().success());
}

/// A request that is under way is finished; a second signal does not wait for it.
#[tokio::test]
async fn a_stop_waits_for_requests_and_a_second_signal_does_not() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "true").await;
    let finished = {
        let under_way = run(&service, &key, &id, "touch begun; sleep 2; echo finished");
        let stopping = async {
            started(&service, &key, &id).await;
            service.signal(Signal::TERM).unwrap();
        };
        tokio::join!(under_way, stopping).0
    };
    assert_eq!(finished["stdout"], "finished\n");
    assert!(service.gone(STOPS_WITHIN).await.unwrap().success());

    service.boot().await.unwrap();
    let client = service.client(&key).unwrap();
    let path = format!("/v1/sandboxes/{id}/execute");
    let body = json!({ "command": "rm begun; touch begun; sleep 25" });
    let under_way = tokio::spawn(async move { client.post(&path, &body).await });
    started(&service, &key, &id).await;
    service.signal(Signal::TERM).unwrap();
    let begin = Instant::now();
    while !service.log().lines().any(|line| line.contains("stopping;")) || begin.elapsed().as_millis() < 100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    service.signal(Signal::INT).unwrap();
    service.gone(Duration::from_secs(5)).await.unwrap();
    assert!(under_way.await.unwrap().is_err(), "a request was answered by a daemon that is gone");
}

async fn started(service: &Service, key: &str, id: &str) {
    let begin = Instant::now();
    while run(service, key, id, "pgrep -c sleep").await["stdout"] != "1\n" {
        assert!(begin.elapsed() < Duration::from_secs(10), "the command does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_hang_up_changes_nothing() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let pid = service.pid();
    service.signal(Signal::HUP).unwrap();
    let begin = Instant::now();
    while !service.log().contains("SIGHUP") {
        assert!(begin.elapsed() < Duration::from_secs(5), "{}", service.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(service.anonymous().unwrap().get("/v1/health").await.unwrap().status, 200);
    assert_eq!(service.pid(), pid);
}

/// systemd hears when the daemon is ready and when it stops.
#[tokio::test]
async fn systemd_is_told() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(STOPS_WITHIN)).unwrap();
    let mut program = service.program().unwrap();
    let daemon = Daemon::start(program.args(ANYWHERE).env("NOTIFY_SOCKET", &path));
    let received = |socket: &UnixDatagram| {
        let mut buffer = [0; 64];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    let ready = received(&socket);
    daemon.stop();
    let stopping = received(&socket);
    assert_eq!((ready.as_str(), stopping.as_str()), ("READY=1", "STOPPING=1"));
}

/// What the metrics say after some requests.
#[tokio::test]
async fn metrics_count_what_happened() {
    let options = ServiceOptions::default().with("limits", "read_per_minute", "3");
    let service = Service::start(&options).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "true").await;
    let client = service.client(&key).unwrap();
    for _ in 0..4 {
        client.get(&format!("/v1/sandboxes/{id}")).await.unwrap();
    }
    service.client("nonsense").unwrap().get("/v1/sandboxes").await.unwrap();
    let text = metrics(&service).await;
    for wanted in [
        "sandboxd_sandboxes{state=\"running\"} 1",
        "sandboxd_created_total{from=\"nothing\"} 1",
        "sandboxd_executions_started_total 1",
        "sandboxd_http_refusals_total{reason=\"rate_limited\"} 1",
        "sandboxd_http_refusals_total{reason=\"unauthorized\"} 1",
        "sandboxd_used_vcpus 2",
        "sandboxd_build_info{version=",
        "sandboxd_capacity_memory_bytes ",
        "sandboxd_process_resident_memory_bytes ",
        "# EOF",
    ] {
        assert!(text.lines().any(|line| line.starts_with(wanted)), "no {wanted} in\n{text}");
    }
    let counted = |status: &str| {
        text.lines().any(|line| {
            line.starts_with("sandboxd_http_requests_total{")
                && line.contains("route=\"/v1/sandboxes/{id}\"")
                && line.contains(&format!("status=\"{status}\""))
        })
    };
    assert!(counted("200") && counted("429"), "{text}");
    assert!(!text.contains(&id) && !text.contains(&key), "an id or a key is in the metrics");
}

async fn metrics(service: &Service) -> String {
    let mut stream = tokio::net::TcpStream::connect(service.metrics).await.unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    text
}

/// The log has no secret in it but the one line that shows the first key, in either format.
#[tokio::test]
async fn the_log_is_json_where_wanted_and_holds_no_secret() {
    let options =
        ServiceOptions::default().with("log", "format", "\"json\"").with("log", "level", "\"debug\"");
    let service = Service::start(&options).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "echo seen-in-output").await;
    stop(&service).await;
    let said = service.log();
    let lines: Vec<Value> = said
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().any(|line| line["level"] == "INFO" && line["message"] == "ready"), "{said}");
    let shown: Vec<&str> = said.lines().filter(|line| line.contains(&key)).collect();
    assert_eq!(shown, [format!("key: {key}")], "{said}");
    assert!(!said.contains("seen-in-output"), "{said}");
}

/// What `./dev run` prints can be pasted into bash and works, certificate and all.
#[tokio::test]
async fn the_printed_commands_work() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let log = std::fs::File::create(service.log_file()).unwrap();
    let mut program = service.program().unwrap();
    let daemon = Daemon::start(program.args(ANYWHERE).arg("--show-key").stdout(log));
    let begin = Instant::now();
    while !service.log().contains("/execute\n") {
        assert!(begin.elapsed() < STOPS_WITHIN, "{}", service.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let said = service.log();
    let (_, commands) = said.split_once("into a shell:\n").unwrap();
    // starts: curl
    let output = Command::new("bash").args(["-euo", "pipefail", "-c", commands]).output().unwrap();
    daemon.stop();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}{}", stdout(&output), String::from_utf8_lossy(&output.stderr)));
    assert!(answer["stdout"].as_str().unwrap().starts_with("hello from "), "{answer}");
}

/// Behind a proxy: plain HTTP, and nothing to be redirected to.
#[tokio::test]
async fn without_tls_it_speaks_plain_http() {
    let options = ServiceOptions::default().with("http", "tls", "\"off\"");
    let service = Service::new(&options).unwrap();
    let mut daemon = Daemon::start(service.program().unwrap().arg("serve").stdout(Stdio::piped()));
    let mut said = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(daemon.0.stdout.take().unwrap()), &mut said)
        .unwrap();
    let mut stream = tokio::net::TcpStream::connect(service.address).await.unwrap();
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let redirect = tokio::net::TcpStream::connect(service.plain).await;
    daemon.stop();
    assert_eq!(said, format!("sandboxd is ready at http://{}\n", service.address));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"status\":\"ok\""), "{answer}");
    assert!(redirect.is_err(), "something listens for redirects");
}

/// The operator's own certificate; one that is missing is named before anything is touched.
#[tokio::test]
async fn a_certificate_of_the_operators() {
    let maker = Service::start(&ServiceOptions::default()).await.unwrap();
    let file = |name: &str| maker.place.data.join("tls").join(name).canonicalize().unwrap();
    let (certificate, key) = (file("tls-cert.pem"), file("tls-key.pem"));
    let options = |key: &std::path::Path| {
        ServiceOptions::default()
            .with("http", "tls", "\"files\"")
            .with("http", "tls_cert", &format!("{certificate:?}"))
            .with("http", "tls_key", &format!("{key:?}"))
    };
    let service = Service::new(&options(&key)).unwrap();
    // Where the test's client looks for what to trust.
    std::fs::copy(&certificate, service.place.data.join("trusted.pem")).unwrap();
    service.boot().await.unwrap();
    assert!(!service.place.data.join("tls").exists(), "a certificate was made");
    let broken = Service::new(&options(std::path::Path::new("/nonexistent/key.pem"))).unwrap();
    let output = sandboxd(&broken, &["serve"]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("/nonexistent/key.pem"), "{said}");
    assert!(!broken.place.data.join("store.db").exists());
}
