//! Upgrades: a daemon of a previous version creates sandboxes, and the current one continues with them.
//!
//! `./dev upgrade` builds the previous programs and passes their directory in `SANDBOXD_PREVIOUS`. Each module has one kind
//! of state: it prepares that state with the previous daemon and verifies it with the current one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod configuration;
mod connectivity;
mod executions;
mod paused;
mod records;
mod replays;
mod running;
mod sbx;
mod timers;

use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::internet::{Internet, RESOLVER, Site};
use e2e::service::{
    Client, SANDBOXES, Service, ServiceOptions, action_path, number, output, run_command, sandbox_path,
    small, state, text, with,
};
use e2e::wait_until;
use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Previous,
    Current,
}

impl Version {
    fn programs(self) -> PathBuf {
        let directory = match self {
            Self::Previous => std::env::var_os("SANDBOXD_PREVIOUS")
                .map(PathBuf::from)
                .unwrap_or_else(|| panic!("SANDBOXD_PREVIOUS is not set: run './dev upgrade'")),
            Self::Current => Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bin"),
        };
        directory.canonicalize().unwrap_or_else(|error| panic!("{}: {error}", directory.display()))
    }
}

/// How the previous daemon ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Term,
    Kill,
}

/// An installation on a simulated internet, whose programs can be replaced.
struct Installation {
    // Dropped first: this kills the daemon and removes the sandboxes.
    service: Service,
    internet: Internet,
    programs: tempfile::TempDir,
}

impl Installation {
    async fn new(version: Version) -> Self {
        Self::with(version, |options| options).await
    }

    async fn with(version: Version, change: impl FnOnce(ServiceOptions) -> ServiceOptions) -> Self {
        // Built from packages, so before the thread leaves the host's network.
        e2e::rootfs().unwrap();
        let internet = Internet::new().unwrap();
        internet.enter().unwrap();
        internet.watch().unwrap();
        internet.web().unwrap();
        let programs = tempfile::Builder::new().prefix("sandboxd-test-programs-").tempdir().unwrap();
        // The defaults of the product where the harness has others, because an upgrade changes defaults too.
        let options = ServiceOptions::default()
            .programs(programs.path())
            .default_capacity()
            .without_isolation()
            // Earlier versions do not know it.
            .without("limits", "operate_per_minute")
            .with("runtime", "lxcfs", "\"auto\"")
            .with("limits", "concurrent_executions", "20")
            .with("egress", "resolver", &format!("\"{RESOLVER}\""))
            .with("pool", &format!("\"{}\"", Service::image()), "1");
        let installation = Self { service: Service::new(&change(options)).unwrap(), internet, programs };
        installation.start(version).await;
        installation
    }

    /// Starts the daemon of this version.
    async fn start(&self, version: Version) {
        install(version, self.programs.path());
        self.service.start_process().await.unwrap();
        let running = format!("/proc/{}/exe", self.service.pid().unwrap());
        let size = |file: &Path| std::fs::metadata(file).unwrap().len();
        assert_eq!(
            size(Path::new(&running)),
            size(&version.programs().join("sandboxd")),
            "another version runs"
        );
    }

    fn site(&self, name: &str) -> Site {
        self.internet.site(name).unwrap()
    }

    /// Ends the daemon, replaces the programs, and starts the current daemon.
    async fn upgrade(&self, end: End) {
        self.end(end).await;
        self.start(Version::Current).await;
    }

    async fn end(&self, end: End) {
        match end {
            End::Term => {
                self.service.signal(Signal::TERM).unwrap();
                let status = self.service.wait_for_exit(TIMEOUT).await.unwrap();
                assert!(status.success(), "{status}: {}", self.service.log_tail());
            }
            End::Kill => self.service.kill().unwrap(),
        }
    }

    /// An older daemon may refuse the database of a newer one, with a reason and without changing it.
    async fn downgrade_and_upgrade(&self) {
        self.end(End::Term).await;
        install(Version::Previous, self.programs.path());
        match self.service.start_process().await {
            Ok(()) => self.end(End::Term).await,
            Err(error) => {
                let text = format!("{error:#}");
                assert!(text.contains("and this program knows up to"), "{text}");
            }
        }
        self.start(Version::Current).await;
    }
}

/// Replaces the programs as `install` does: a running daemon keeps its file.
fn install(version: Version, directory: &Path) {
    for name in ["sandboxd", "sandbox-agent", "sandbox-launcher"] {
        let (program, new) = (version.programs().join(name), directory.join(format!("{name}.new")));
        // Versions before ADR 0018 have no launcher.
        if name == "sandbox-launcher" && !program.exists() {
            continue;
        }
        std::fs::copy(program, &new).unwrap();
        std::fs::rename(new, directory.join(name)).unwrap();
    }
}

async fn everything_survives(end: End) {
    let installation = Installation::new(Version::Previous).await;
    let client = installation.service.account().await.unwrap();
    let keys = records::Keys::prepare(&installation).await;
    let replays = replays::Replays::prepare(&client).await;
    let connectivity = connectivity::Connectivity::prepare(&installation, &client).await;
    let paused = paused::Paused::prepare(&client).await;
    let stopped = paused::Stopped::prepare(&installation, &client).await;
    let mut running = running::Running::prepare(&client).await;
    let timers = timers::Timers::prepare(&client).await;
    let records = records::Records::take(&client).await;
    installation.end(end).await;
    running.read_the_rest().await;
    installation.start(Version::Current).await;

    let client = client.with_own_connections();
    records.verify(&client).await;
    keys.verify().await;
    replays.verify(&client).await;
    usage(&client).await;
    connectivity.verify(&installation, &client).await;
    paused.verify(&client).await;
    stopped.verify(&client).await;
    running.verify(&installation, &client).await;
    timers.verify(&client).await;
    from_the_pool(&client).await;
    if matches!(end, End::Term) {
        installation.downgrade_and_upgrade().await;
    }
    let client = client.with_own_connections();
    let ids = live(&client).await;
    assert!(!ids.is_empty());
    for id in &ids {
        client.delete(&sandbox_path(id)).await.unwrap().is(200).unwrap();
    }
    assert_no_leftovers(&installation, &ids).await;
}

#[tokio::test]
#[ignore = "run by ./dev upgrade, which builds the previous programs"]
async fn everything_survives_an_upgrade_after_sigterm() {
    everything_survives(End::Term).await;
}

#[tokio::test]
#[ignore = "run by ./dev upgrade, which builds the previous programs"]
async fn everything_survives_an_upgrade_after_sigkill() {
    everything_survives(End::Kill).await;
}

/// Under the previous version gVisor was a setting of the whole service. Its sandboxes keep it.
#[tokio::test]
#[ignore = "run by ./dev upgrade, which builds the previous programs"]
async fn sandboxes_under_gvisor_survive_an_upgrade() {
    let runsc = e2e::gvisor().unwrap().canonicalize().unwrap();
    let under_gvisor = |options: ServiceOptions| options.with("runtime", "path", &format!("{runsc:?}"));
    let installation = Installation::with(Version::Previous, under_gvisor).await;
    let client = installation.service.account().await.unwrap();
    let (running, stopped, stored) = (
        create_sandbox(&client, &small()).await,
        create_sandbox(&client, &small()).await,
        create_sandbox(&client, &small()).await,
    );
    for id in [&running, &stopped, &stored] {
        output(&client, id, "echo kept > f; sync; sleep 9999 >/dev/null 2>&1 &").await;
    }
    lose_processes(&installation, &client, &stopped).await;
    let info = client.get("/v1/info").await.unwrap().is(200).unwrap();
    let has_suspension = info["backends"].as_array().unwrap().iter().any(|it| it["memorySnapshots"] == true);
    // Versions before hibernation pause it.
    let hibernate = json!({ "hibernate": true });
    client.post(&action_path(&stored, "pause"), &hibernate).await.unwrap().is(200).unwrap();
    installation.end(End::Kill).await;
    installation.start(Version::Current).await;
    let client = client.with_own_connections();
    assert_eq!(output(&client, &running, "cat f; cat /proc/[0-9]*/comm | grep -c sleep").await, "kept\n1\n");
    // The processes of the other one start again, with the network that gVisor has now.
    let seen =
        output(&client, &stopped, "cat f; cut -d' ' -f3 /proc/version; grep -c eth0 /proc/net/dev").await;
    assert_eq!(seen, "kept\n4.4.0\n1\n");
    let view = client.get(&sandbox_path(&running)).await.unwrap().is(200).unwrap();
    assert_eq!(view["isolation"], "gvisor");
    snapshot_processes(&client, &stored, has_suspension).await;
    for id in [&running, &stored] {
        assert_eq!(output(&client, id, "cat f; cat /proc/[0-9]*/comm | grep -c sleep").await, "kept\n1\n");
        snapshot_processes(&client, id, has_suspension).await;
        assert_eq!(output(&client, id, "cat /proc/[0-9]*/comm | grep -c sleep").await, "1\n");
        run_action(&client, id, "pause").await;
        client.post(&action_path(id, "resume"), &json!({ "cold": true })).await.unwrap().is(200).unwrap();
        // Without its processes it has got the agent of this version.
        snapshot_processes(&client, id, true).await;
    }
    let new = create_sandbox(&client, &small()).await;
    assert_eq!(output(&client, &new, "cut -d' ' -f3 /proc/version").await, "4.4.0\n");
    for id in [&running, &stopped, &stored, &new] {
        client.delete(&sandbox_path(id)).await.unwrap().is(200).unwrap();
    }
    assert_no_leftovers(&installation, &[running, stopped, stored, new]).await;
}

/// Takes a snapshot with the processes of a sandbox, whose agent may be too old to suspend its link.
async fn snapshot_processes(client: &Client, id: &str, has_suspension: bool) {
    let taken = client.post(&action_path(id, "snapshots"), &json!({ "memory": true })).await.unwrap();
    if !has_suspension {
        taken.error(409, "ISOLATION_MISMATCH").unwrap();
        return;
    }
    let taken = taken.is(201).unwrap();
    assert_eq!(taken["memory"], true);
    let path = format!("/v1/snapshots/{}", text(&taken["id"]));
    client.delete(&path).await.unwrap().is(200).unwrap();
}

/// The current daemon reports the right usage of an account that the previous one served.
async fn usage(client: &Client) {
    let usage = client.get("/v1/usage").await.unwrap().is(200).unwrap();
    let used = |name: &str| number(&usage[name]["used"]);
    let live = live(client).await.len() as u64;
    let running = client.get("/v1/sandboxes?state=running&limit=100").await.unwrap().is(200).unwrap();
    assert_eq!(used("sandboxes"), live, "{usage}");
    assert_eq!(used("vcpus"), 2 * number(&running["pagination"]["total"]), "{usage}");
    assert_eq!(used("diskMb"), 5120 * live, "{usage}");
    for name in ["executionLogBytes", "idempotencyBytes", "eventBytes", "postedEventBytes"] {
        assert!(used(name) > 0, "{name} of {usage}");
    }
}

/// A create with the size of the warm pool succeeds.
async fn from_the_pool(client: &Client) {
    let body = json!({ "image": Service::image() });
    let id = text(&client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap()["id"]);
    assert_eq!(output(client, &id, "echo of the pool").await, "of the pool\n");
    client.delete(&sandbox_path(&id)).await.unwrap().is(200).unwrap();
}

async fn live(client: &Client) -> Vec<String> {
    let listed = client.get(&format!("{SANDBOXES}?limit=100")).await.unwrap().is(200).unwrap();
    let all = listed["data"].as_array().unwrap().iter();
    all.filter(|sandbox| sandbox["state"] != "terminated").map(|sandbox| text(&sandbox["id"])).collect()
}

/// Nothing on the host belongs to sandboxes that were terminated.
async fn assert_no_leftovers(installation: &Installation, ids: &[String]) {
    let mut strays = Vec::new();
    wait_until("nothing is left", async || {
        strays = e2e::strays(&installation.service.layout, &e2e::Expected::default());
        strays.retain(|stray| ids.iter().any(|id| stray.contains(id.as_str())));
        strays.is_empty()
    })
    .await;
}

async fn create_sandbox(client: &Client, body: &Value) -> String {
    text(&client.post(SANDBOXES, body).await.unwrap().is(201).unwrap()["id"])
}

/// Sends a request that has no body and must succeed.
async fn run_action(client: &Client, id: &str, action: &str) -> Value {
    client.post_empty(&action_path(id, action)).await.unwrap().is(200).unwrap()
}

/// Kills the first process of a sandbox, which ends all others, and waits until the daemon has noticed.
async fn lose_processes(installation: &Installation, client: &Client, id: &str) {
    let pid_file = installation.service.layout.run.join("sandboxes").join(id).join("first.pid");
    let pid: i32 = std::fs::read_to_string(pid_file).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    wait_until("the loss of its processes is noticed", async || state(client, id).await == "paused").await;
}

async fn write(client: &Client, id: &str, path: &str, content: &[u8]) {
    let path = action_path(id, &format!("files?path={path}&parents=true"));
    let call = client.call(Method::PUT, &path).body("application/octet-stream", content.to_vec());
    call.send().await.unwrap().is(200).unwrap();
}

async fn read(client: &Client, id: &str, path: &str) -> Vec<u8> {
    let answer = client.get(&action_path(id, &format!("files?path={path}"))).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.body.to_vec()
}
