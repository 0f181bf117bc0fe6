//! The daemon as operators see it: starts, the first key, key management, the lock on the data directory, shutdown, metrics.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use e2e::service::{Service, ServiceOptions};
use e2e::wait_until;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// `serve` on free ports.
const SERVE_ON_FREE_PORTS: [&str; 7] = [
    "serve",
    "--listen",
    "127.0.0.1:0",
    "--redirect-listen",
    "127.0.0.1:0",
    "--metrics-listen",
    "127.0.0.1:0",
];
const STOPS_WITHIN: Duration = Duration::from_secs(90);
/// A revocation takes effect within a second; a machine under load may need longer.
const REVOKED_WITHIN: Duration = Duration::from_secs(5);

fn key_file(service: &Service) -> PathBuf {
    service.layout.data.join("local.key")
}

fn first_key(service: &Service) -> String {
    std::fs::read_to_string(key_file(service)).unwrap().trim().to_owned()
}

/// Moves the database from one directory to another.
fn move_database(from: &Path, to: &Path) {
    for file in ["store.db", "store.db-wal", "store.db-shm", "store.db-notes"] {
        if from.join(file).exists() {
            std::fs::rename(from.join(file), to.join(file)).unwrap();
        }
    }
}

/// A start without the database of its sandboxes fails and changes nothing. The operator can have them deleted.
#[tokio::test]
async fn sandboxes_without_their_database_are_deleted_only_on_request() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let (key, data) = (first_key(&service), service.layout.data.as_path());
    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "echo kept > /workspace/file").await;
    stop(&service).await;
    // On the same file system.
    let elsewhere = tempfile::tempdir_in(data.canonicalize().unwrap().parent().unwrap()).unwrap();
    move_database(data, elsewhere.path());
    for arguments in [&["serve"][..], &["key", "create", "--account", "team", "--scopes", "read"]] {
        let output = sandboxd(&service, arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{arguments:?}");
        for part in ["1 sandbox and 0 snapshots", "docs/operations.md", "--discard-orphans"] {
            assert!(stderr.contains(part), "{arguments:?}: {stderr}");
        }
        assert!(!data.join("store.db").exists(), "{arguments:?}");
    }
    move_database(elsewhere.path(), data);
    service.start_process().await.unwrap();
    assert_eq!(run(&service, &key, &id, "cat /workspace/file").await["stdout"], "kept\n");
    stop(&service).await;

    move_database(data, elsewhere.path());
    let log = std::fs::File::create(service.log_file()).unwrap();
    let mut program = service.program().unwrap();
    let program = program.args(SERVE_ON_FREE_PORTS).arg("--discard-orphans");
    let daemon = Daemon::start(program.stdout(log.try_clone().unwrap()).stderr(log));
    let log = wait_for_ready_messages(&service, 1).await;
    daemon.stop();
    let warning =
        log.lines().find(|line| line.contains("removing sandboxes that the database does not have"));
    assert!(warning.is_some_and(|line| line.contains("WARN")), "{log}");
    assert!(!data.join("sandboxes").join(&id).exists());
}

fn sandboxd(service: &Service, arguments: &[&str]) -> Output {
    service.program().unwrap().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// A daemon process that is killed when dropped.
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
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn stop(service: &Service) {
    service.signal(Signal::TERM).unwrap();
    assert!(service.wait_for_exit(STOPS_WITHIN).await.unwrap().success(), "{}", service.log_tail());
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

/// Waits until the log has a number of ready messages; the daemon may answer requests slightly earlier.
async fn wait_for_ready_messages(service: &Service, count: usize) -> String {
    let begin = Instant::now();
    loop {
        let log = service.log();
        if log.matches("sandboxd is ready at").count() == count {
            return log;
        }
        assert!(begin.elapsed() < STOPS_WITHIN, "{log}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The first start creates a key that only root can read and prints it once. Sandboxes continue to run across a restart.
#[tokio::test]
async fn the_first_start_creates_a_key_and_the_second_keeps_it() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    assert_eq!(std::fs::metadata(key_file(&service)).unwrap().permissions().mode() & 0o7777, 0o600);
    let log = wait_for_ready_messages(&service, 1).await;
    assert!(log.contains(&format!("sandboxd is ready at https://{}\n", service.address)), "{log}");
    assert_eq!(log.matches(&key).count(), 1, "{log}");

    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "echo kept > /workspace/file; sleep 300 > /dev/null 2>&1 &").await;
    stop(&service).await;
    assert!(service.log().contains("stopped; sandboxes keep running"), "{}", service.log());
    service.start_process().await.unwrap();
    assert_eq!(first_key(&service), key);
    let log = wait_for_ready_messages(&service, 2).await;
    assert_eq!(log.matches(&key).count(), 1, "the key was printed again: {log}");
    assert_eq!(log.matches("/local.key\n").count(), 2, "{log}");
    let result = run(&service, &key, &id, "cat /workspace/file; pgrep -c sleep").await;
    assert_eq!(result["stdout"], "kept\n1\n");
}

/// The scores of processes for the kernel's out-of-memory killer.
fn oom_scores(pids: impl IntoIterator<Item = i32>) -> Vec<i32> {
    let score = |pid| std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok();
    pids.into_iter().filter_map(score).collect()
}

/// Processes of a sandbox, as the host numbers them.
fn processes_of(service: &Service, id: &str) -> Vec<i32> {
    let roots = ["/sys/fs/cgroup/freezer", "/sys/fs/cgroup"].map(Path::new);
    let mut lists =
        roots.map(|root| root.join(&service.layout.name).join(id).join("cgroup.procs")).into_iter();
    let list = lists.find_map(|list| std::fs::read_to_string(list).ok()).unwrap();
    list.lines().map(|pid| pid.parse().unwrap()).collect()
}

#[tokio::test]
async fn no_sandbox_lowers_its_score_of_the_out_of_memory_killer() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    let client = service.client(&key).unwrap();
    for isolation in ["container", "gvisor"] {
        let body = json!({ "image": Service::image(), "isolation": isolation });
        let created = client.post("/v1/sandboxes", &body).await.unwrap().is(201).unwrap();
        let id = created["id"].as_str().unwrap();
        let lower = "sleep 300 > /dev/null 2>&1 & for score in -1 -500 -1000; do for pid in self 1 $!; do \
            echo $score > /proc/$pid/oom_score_adj; done; done 2> /dev/null; true";
        run(&service, &key, id, lower).await;
        let processes = processes_of(&service, id);
        let scores = oom_scores(processes.iter().copied());
        assert!(scores.len() >= 2 && scores.iter().all(|score| *score >= 0), "{isolation}: {scores:?}");
    }
}

/// The daemon and its lxcfs. What they start gets the default score; `src/bin/guest.rs` tests that with a daemon that has one.
#[tokio::test]
async fn the_daemon_is_killed_after_sandboxes() {
    const CAP_SYS_RESOURCE: u64 = 1 << 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let service =
        Service::start(&ServiceOptions::default().with("runtime", "lxcfs", "\"auto\"")).await.unwrap();
    if u64::from_str_radix(capabilities, 16).unwrap() & CAP_SYS_RESOURCE == 0 {
        let log = service.log();
        let warnings: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("is not protected from the kernel's out-of-memory"))
            .collect();
        assert!(warnings.len() == 1 && warnings[0].contains("CAP_SYS_RESOURCE"), "{log}");
        // The machine of `cgroup_v2.rs` has the capability.
        return;
    }
    let daemon = i32::try_from(service.pid().unwrap()).unwrap();
    let lxcfs = std::fs::read_to_string(service.layout.run.join("lxcfs.pid")).unwrap_or_default();
    let protected = [Some(daemon), lxcfs.trim().parse().ok()];
    let scores = oom_scores(protected.into_iter().flatten());
    assert!(!scores.is_empty() && scores.iter().all(|score| *score == -999), "{scores:?}");
}

/// A key file that the store does not know is made valid; a removed key file is not created again.
#[tokio::test]
async fn the_first_key_is_created_once() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    stop(&service).await;
    for file in ["store.db", "store.db-wal", "store.db-shm"] {
        let _ = std::fs::remove_file(service.layout.data.join(file));
    }
    service.start_process().await.unwrap();
    assert_eq!(first_key(&service), key);
    let client = service.client(&key).unwrap();
    assert_eq!(client.get("/v1/sandboxes").await.unwrap().status, 200);
    stop(&service).await;
    std::fs::remove_file(key_file(&service)).unwrap();
    service.start_process().await.unwrap();
    assert!(!key_file(&service).exists());
    assert_eq!(client.get("/v1/sandboxes").await.unwrap().status, 200);
}

#[tokio::test]
async fn a_second_daemon_is_refused_and_names_the_first() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let output = sandboxd(&service, &["serve", "--listen", "127.0.0.1:0"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let pid = service.pid().unwrap();
    assert!(stderr.contains(&format!("another sandboxd (process {pid})")), "{stderr}");
    assert!(stderr.contains("--data-dir"), "{stderr}");
    // The first daemon is not affected.
    assert_eq!(service.anonymous().unwrap().get("/v1/health").await.unwrap().status, 200);
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let _taken = std::net::TcpListener::bind(service.address).unwrap();
    let output = sandboxd(&service, &["serve"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("http.listen") && stderr.contains(&service.address.to_string()), "{stderr}");
}

/// Keys are created, listed and revoked while the server runs.
#[tokio::test]
async fn keys_are_created_and_revoked_while_the_server_runs() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let output = sandboxd(
        &service,
        &["key", "create", "--account", "team", "--scopes", "execute,read", "--label", "for tests"],
    );
    let printed = stdout(&output);
    let key = printed.trim();
    assert_eq!(printed, format!("{key}\n"), "more than the key was printed");
    assert!(key.starts_with("sbk_"), "{key}");

    let listed: Value =
        serde_json::from_str(&stdout(&sandboxd(&service, &["key", "list", "--json"]))).unwrap();
    let keys = listed.as_array().unwrap();
    assert_eq!(keys.len(), 2);
    let created = keys.iter().find(|key| key["account"] == "team").unwrap();
    assert_eq!(created["scopes"], json!(["read", "execute"]));
    assert_eq!(created["label"], "for tests");
    assert_eq!(created["revokedAt"], Value::Null);
    assert!(key.starts_with(created["begins"].as_str().unwrap()));
    let id = created["id"].as_str().unwrap();
    let table = stdout(&sandboxd(&service, &["key", "list"]));
    assert!(table.lines().any(|line| line.starts_with(id) && line.ends_with("for tests")), "{table}");
    assert!(!table.contains(key) && !listed.to_string().contains(key), "a list contains a key");

    let client = service.client(key).unwrap();
    wait_for_status(&client, 200).await;
    assert_eq!(client.delete("/v1/sandboxes/sb_none").await.unwrap().status, 403);
    stdout(&sandboxd(&service, &["key", "revoke", id]));
    wait_for_status(&client, 401).await;
    // Revoking again changes nothing; an unknown id is named in the error.
    stdout(&sandboxd(&service, &["key", "revoke", id]));
    let output = sandboxd(&service, &["key", "revoke", "key_none"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("key_none"));
    assert!(!output.status.success());
    // A stop writes what the last minute may lack.
    stop(&service).await;
    let listed: Value =
        serde_json::from_str(&stdout(&sandboxd(&service, &["key", "list", "--json"]))).unwrap();
    let used = listed.as_array().unwrap().iter().find(|key| key["id"] == id).unwrap();
    assert!(used["lastUsedAt"].is_string(), "{used}");
}

/// An operator who knows an id finds the account and the end.
#[tokio::test]
async fn a_sandbox_is_found_by_its_id() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    let row = || {
        let table = stdout(&sandboxd(&service, &["sandboxes", &id]));
        table.lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row()[..4], [&*id, "default", "-", "running"]);
    service.client(&key).unwrap().delete(&format!("/v1/sandboxes/{id}")).await.unwrap();
    let ended = row();
    assert_eq!((ended[3].as_str(), ended.last().unwrap().as_str()), ("terminated", "deleted"));
    let unknown = sandboxd(&service, &["sandboxes", "sb_00000000000000000000"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no sandbox 'sb_00000000000000000000'"));
}

async fn wait_for_status(client: &e2e::service::Client, status: u16) {
    let begin = Instant::now();
    while client.get("/v1/sandboxes").await.unwrap().status != status {
        assert!(begin.elapsed() < REVOKED_WITHIN, "the status is not {status} in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Keys can be created without a server and are valid from its start.
#[tokio::test]
async fn the_first_start_creates_the_local_key_beside_others() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let key = service.key("mine", "admin").unwrap();
    service.start_process().await.unwrap();
    assert!(key_file(&service).exists());
    assert_eq!(service.client(&key).unwrap().get("/v1/sandboxes").await.unwrap().status, 200);
}

/// A mistyped data directory is an error of the commands that need existing data, and stays as it is.
#[tokio::test]
async fn commands_that_need_existing_data_create_none() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (missing, empty) = (dir.path().join("missing"), dir.path().join("empty"));
    std::fs::create_dir(&empty).unwrap();
    for data in [&missing, &empty] {
        let data = data.to_str().unwrap();
        for words in [
            &["key", "revoke", "key_none"][..],
            &["egress", "check", "sb_00000000000000000000", "a.example"],
            &["image", "list"],
            &["image", "remove", Service::image()],
        ] {
            let output = sandboxd(&service, &[&["--data-dir", data][..], words].concat());
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(125), "{words:?}: {stderr}");
            assert!(stderr.contains(&format!("no data of sandboxd in '{data}'")), "{words:?}: {stderr}");
            assert!(output.stdout.is_empty(), "{words:?}");
        }
        // Before the first start there is nothing to list, which is no error. The directory may be mistyped all the same.
        for (words, listed) in [
            (&["key", "list"][..], ""),
            (&["key", "list", "--json"], "[]\n"),
            (&["accounts", "--quiet"], ""),
            (&["accounts", "--json"], "{}\n"),
            (&["sandboxes", "--json"], "[]\n"),
        ] {
            let output = sandboxd(&service, &[&["--data-dir", data][..], words].concat());
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success(), "{words:?}: {stderr}");
            assert!(stderr.contains(&format!("no data of sandboxd in '{data}'")), "{words:?}: {stderr}");
            assert_eq!(String::from_utf8_lossy(&output.stdout), listed, "{words:?}");
        }
    }
    assert!(!missing.exists());
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
    // The first key may be created before the first start.
    let missing = missing.to_str().unwrap();
    let create = ["--data-dir", missing, "key", "create", "--account", "team", "--scopes", "read"];
    stdout(&sandboxd(&service, &create));
    let table = stdout(&sandboxd(&service, &["--data-dir", missing, "key", "list"]));
    assert!(table.contains(" team "), "{table}");
}

#[tokio::test]
async fn invalid_arguments_of_key_create_are_named() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    for (arguments, words) in [
        (["--account", "a", "--scopes", "fly"], ["fly", "read, execute, write, admin"]),
        (["--account", "a b", "--scopes", "read"], ["a b", "letters"]),
        (["--account", "", "--scopes", "read"], ["''", "1 to 64"]),
    ] {
        let output = sandboxd(&service, &[&["key", "create"][..], &arguments[..]].concat());
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.iter().all(|word| stderr.contains(word)), "{stderr}");
        assert!(output.stdout.is_empty());
    }
}

/// Open streams get an error at shutdown, so that the shutdown does not take the whole grace period.
#[tokio::test]
async fn a_shutdown_ends_streams_with_an_error() {
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
    assert!(service.wait_for_exit(STOPS_WITHIN).await.unwrap().success());
}

/// A shutdown waits for running requests; a second signal does not.
#[tokio::test]
async fn a_shutdown_waits_for_requests_and_a_second_signal_does_not() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "true").await;
    let finished = {
        let request = run(&service, &key, &id, "touch begun; sleep 2; echo finished");
        let stopping = async {
            wait_for_start(&service, &key, &id).await;
            service.signal(Signal::TERM).unwrap();
        };
        tokio::join!(request, stopping).0
    };
    assert_eq!(finished["stdout"], "finished\n");
    assert!(service.wait_for_exit(STOPS_WITHIN).await.unwrap().success());

    service.start_process().await.unwrap();
    let client = service.client(&key).unwrap();
    let path = format!("/v1/sandboxes/{id}/execute");
    let body = json!({ "command": "rm begun; touch begun; sleep 25" });
    let request = tokio::spawn(async move { client.post(&path, &body).await });
    wait_for_start(&service, &key, &id).await;
    service.signal(Signal::TERM).unwrap();
    let begin = Instant::now();
    while !service.log().lines().any(|line| line.contains("stopping;")) || begin.elapsed().as_millis() < 100 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    service.signal(Signal::INT).unwrap();
    service.wait_for_exit(Duration::from_secs(5)).await.unwrap();
    assert!(request.await.unwrap().is_err(), "a request was answered after the daemon ended");
}

async fn wait_for_start(service: &Service, key: &str, id: &str) {
    wait_until("the command starts", async || {
        run(service, key, id, "pgrep -c sleep").await["stdout"] == "1\n"
    })
    .await;
}

#[tokio::test]
async fn sighup_changes_nothing() {
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    let pid = service.pid();
    service.signal(Signal::HUP).unwrap();
    wait_until("the signal is logged", async || service.log().contains("SIGHUP")).await;
    assert_eq!(service.anonymous().unwrap().get("/v1/health").await.unwrap().status, 200);
    assert_eq!(service.pid(), pid);
}

/// systemd is notified when the daemon is ready and when it stops.
#[tokio::test]
async fn systemd_is_notified() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(STOPS_WITHIN)).unwrap();
    let mut program = service.program().unwrap();
    let daemon = Daemon::start(program.args(SERVE_ON_FREE_PORTS).env("NOTIFY_SOCKET", &path));
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

/// The metrics after some requests.
#[tokio::test]
async fn metrics_count_requests_and_refusals() {
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
    let text = service.read_metrics().await.unwrap();
    for wanted in [
        "sandboxd_sandboxes{state=\"running\"} 1",
        "sandboxd_created_total{source=\"cold\"} 1",
        "sandboxd_executions_started_total 1",
        "sandboxd_http_refusals_total{reason=\"rate_limited\"} 1",
        "sandboxd_http_refusals_total{reason=\"unauthorized\"} 1",
        "sandboxd_used_vcpus 2",
        "sandboxd_build_info{version=",
        "sandboxd_capacity_memory_bytes ",
        "sandboxd_process_resident_memory_bytes ",
        "# TYPE sandboxd_executions_started_total counter",
    ] {
        assert!(text.lines().any(|line| line.starts_with(wanted)), "no {wanted} in\n{text}");
    }
    let observed = |name: &str| -> u64 {
        let prefix = format!("sandboxd_{name}_duration_seconds_count{{isolation=");
        let series = text.lines().filter(|line| line.starts_with(&prefix));
        series.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    };
    let durations = ["sandbox_create", "sandbox_resume", "execution_start"].map(observed);
    assert_eq!(durations, [1, 0, 1], "{text}");
    let is_counted = |status: &str| {
        text.lines().any(|line| {
            line.starts_with("sandboxd_http_requests_total{")
                && line.contains("route=\"/v1/sandboxes/{id}\"")
                && line.contains(&format!("status=\"{status}\""))
        })
    };
    assert!(is_counted("200") && is_counted("429"), "{text}");
    assert!(!text.contains(&id) && !text.contains(&key), "the metrics contain an id or a key");
}

/// The log contains no secrets except the line with the first key.
#[tokio::test]
async fn the_json_log_contains_no_secrets() {
    let options =
        ServiceOptions::default().with("log", "format", "\"json\"").with("log", "level", "\"debug\"");
    let service = Service::start(&options).await.unwrap();
    let key = first_key(&service);
    let id = sandbox(&service, &key).await;
    run(&service, &key, &id, "echo seen-in-output").await;
    stop(&service).await;
    let log = service.log();
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(lines.iter().any(|line| line["level"] == "INFO" && line["message"] == "ready"), "{log}");
    let key_lines: Vec<&str> = log.lines().filter(|line| line.contains(&key)).collect();
    assert_eq!(key_lines, [format!("key: {key}")], "{log}");
    assert!(!log.contains("seen-in-output"), "{log}");
}

/// A start without gVisor says why, in the ready message and in a warning after it: `./dev run` has once thrown away a good gVisor,
/// and nothing said that only containers were left.
#[tokio::test]
async fn a_start_without_gvisor_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("runsc");
    std::fs::write(&old, "#!/bin/sh\necho runsc version release-20230102.0\n").unwrap();
    std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = format!("{:?}", old.display().to_string());
    let options = ServiceOptions::default().with("isolation", "gvisor.program", &program);
    let service = Service::start(&options).await.unwrap();
    let log = wait_for_ready_messages(&service, 1).await;
    let reason = format!("{} is release 20230102; 2024 or later is required", old.display());
    assert!(log.contains("\nisolation: container\n"), "{log}");
    assert!(
        log.contains(&format!("\nmissing isolation: gvisor: {reason}; install runsc of 2024 or later")),
        "{log}"
    );
    let begin = Instant::now();
    let is_warning = |line: &&str| line.contains("WARN") && line.contains(&reason);
    while !service.log().lines().any(|line| is_warning(&line)) {
        assert!(begin.elapsed() < STOPS_WITHIN, "{}", service.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop(&service).await;
}

/// An operator who gives keys to several accounts learns at the start that one of them can take all.
#[tokio::test]
async fn a_start_with_several_accounts_and_no_quotas_says_so() {
    const WARNING: &str = "an account without a quota can take the capacity of the host";
    let service = Service::start(&ServiceOptions::default()).await.unwrap();
    wait_for_ready_messages(&service, 1).await;
    stop(&service).await;
    let log = service.log();
    assert!(!log.contains(WARNING), "{log}");
    // There are no sandboxes.
    assert!(log.contains("stopped") && !log.contains("keep running"), "{log}");
    stdout(&sandboxd(&service, &["key", "create", "--account", "other", "--scopes", "read"]));
    service.start_process().await.unwrap();
    wait_for_ready_messages(&service, 2).await;
    stop(&service).await;
    let log = service.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains(WARNING)).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("WARN"), "{log}");
    for part in ["default, other", "quotas.sandboxes", "quotas.vcpus", "quotas.memory_mb"] {
        assert!(warnings[0].contains(part), "{log}");
    }
}

/// The commands that `./dev run` prints work in bash.
#[tokio::test]
async fn commands_printed_at_start_work() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let log = std::fs::File::create(service.log_file()).unwrap();
    let mut program = service.program().unwrap();
    let daemon = Daemon::start(program.args(SERVE_ON_FREE_PORTS).arg("--show-key").stdout(log));
    let begin = Instant::now();
    while !service.log().contains("/execute\n") {
        assert!(begin.elapsed() < STOPS_WITHIN, "{}", service.log());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let log = service.log();
    let (_, commands) = log.split_once("into a shell:\n").unwrap();
    // starts: curl
    let output = Command::new("bash").args(["-euo", "pipefail", "-c", commands]).output().unwrap();
    daemon.stop();
    let answer: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}{}", stdout(&output), String::from_utf8_lossy(&output.stderr)));
    assert!(answer["stdout"].as_str().unwrap().starts_with("hello from "), "{answer}");
}

/// The reader of the log may end before the daemon: a program behind a pipe that is restarted.
#[tokio::test]
async fn a_daemon_whose_log_lost_its_reader_goes_on() {
    let service = Service::new(&ServiceOptions::default()).unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let mut daemon = Daemon::start(
        service.program().unwrap().args(["serve", "--show-key"]).stdout(Stdio::piped()).stderr(writer),
    );
    let mut output = std::io::BufReader::new(daemon.0.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut output, &mut String::new()).unwrap();
    drop(reader);
    // Each is a line of the log.
    let client = service.client("nonsense").unwrap();
    for _ in 0..3 {
        assert_eq!(client.get("/v1/sandboxes").await.unwrap().status, 401);
    }
    let text = service.read_metrics().await.unwrap();
    let lost = text.lines().find_map(|line| line.strip_prefix("sandboxd_log_lines_lost_total "));
    assert!(lost.is_some_and(|lost| lost.parse::<u64>().unwrap() > 0), "{text}");
    assert!(daemon.0.try_wait().unwrap().is_none(), "the daemon has ended");
    // Succeeds only if the daemon does not fail over the lines of its stop.
    daemon.stop();
}

/// Without TLS, behind a reverse proxy, the daemon serves plain HTTP and does not redirect.
#[tokio::test]
async fn without_tls_plain_http_is_served() {
    let options = ServiceOptions::default().with("http", "tls", "\"off\"");
    let service = Service::new(&options).unwrap();
    let mut daemon = Daemon::start(service.program().unwrap().arg("serve").stdout(Stdio::piped()));
    let mut first_line = String::new();
    std::io::BufRead::read_line(
        &mut std::io::BufReader::new(daemon.0.stdout.take().unwrap()),
        &mut first_line,
    )
    .unwrap();
    let mut stream = tokio::net::TcpStream::connect(service.address).await.unwrap();
    stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let redirect = tokio::net::TcpStream::connect(service.plain).await;
    daemon.stop();
    assert_eq!(first_line, format!("sandboxd is ready at http://{}\n", service.address));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"status\":\"ok\""), "{answer}");
    assert!(redirect.is_err(), "the redirect listener is open");
}

/// The operator's certificate is used. If a file is missing, the error names it before anything is created.
#[tokio::test]
async fn a_certificate_of_the_operator_is_used() {
    let other = Service::start(&ServiceOptions::default()).await.unwrap();
    let file = |name: &str| other.layout.data.join("tls").join(name).canonicalize().unwrap();
    let (certificate, key) = (file("tls-cert.pem"), file("tls-key.pem"));
    let options = |key: &std::path::Path| {
        ServiceOptions::default()
            .with("http", "tls", "\"files\"")
            .with("http", "tls_cert", &format!("{certificate:?}"))
            .with("http", "tls_key", &format!("{key:?}"))
    };
    let service = Service::new(&options(&key)).unwrap();
    // The test's client searches the certificate in the data directory.
    std::fs::copy(&certificate, service.layout.data.join("trusted.pem")).unwrap();
    service.start_process().await.unwrap();
    assert!(!service.layout.data.join("tls").exists(), "a self-signed certificate was created");
    let broken = Service::new(&options(std::path::Path::new("/nonexistent/key.pem"))).unwrap();
    let output = sandboxd(&broken, &["serve"]);
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(stderr.contains("/nonexistent/key.pem"), "{stderr}");
    assert!(!broken.layout.data.join("store.db").exists());
}
