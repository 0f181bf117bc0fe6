//! Programs inside read the sandbox's own memory, processors and uptime: by the host's lxcfs, or by one that the daemon runs.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/skip.rs"]
mod skip;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use api::{Resources, SandboxConfig, SandboxId};
use e2e::service::{Client, Service, ServiceOptions};
use e2e::{Rig, RigOptions, config, with_rig};
use serde_json::json;
use skip::skipped;

/// An lxcfs that ends with its test.
struct Lxcfs {
    child: Child,
    dir: tempfile::TempDir,
    /// A directory that it makes for itself and leaves.
    leaves: Option<PathBuf>,
}

impl Lxcfs {
    fn start() -> Self {
        use std::os::unix::fs::PermissionsExt;
        // The roots of sandboxes, nobodies here, must be able to pass.
        let dir = tempfile::Builder::new()
            .prefix("sandboxd-test-lxcfs-")
            .permissions(std::fs::Permissions::from_mode(0o711))
            .tempdir_in("/run")
            .unwrap();
        let mounted = dir.path().join("mounted");
        std::fs::create_dir(&mounted).unwrap();
        let leaves = Some(PathBuf::from("/run/lxcfs")).filter(|dir| !dir.exists());
        let log = dir.path().join("log");
        let writes = || std::fs::File::options().append(true).create(true).open(&log).unwrap();
        let child = Command::new("lxcfs")
            .args(["-f", "-p"])
            .args([&dir.path().join("pid"), &mounted])
            .stdout(writes())
            .stderr(writes())
            .spawn()
            .unwrap();
        let mut lxcfs = Self { child, dir, leaves };
        let begun = Instant::now();
        while std::fs::read_to_string(mounted.join("proc/meminfo")).unwrap_or_default().is_empty() {
            let ended = lxcfs.child.try_wait().unwrap();
            assert!(ended.is_none(), "lxcfs has ended: {}", std::fs::read_to_string(&log).unwrap());
            assert!(begun.elapsed() < Duration::from_secs(10), "lxcfs does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        lxcfs
    }

    fn dir(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }
}

impl Drop for Lxcfs {
    fn drop(&mut self) {
        // Asked nicely it unmounts itself.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        if mounts.lines().any(|line| line.split(' ').nth(1).map(OsStr::new) == Some(self.dir().as_os_str())) {
            let _ = Command::new("umount").arg("--lazy").arg(self.dir()).status();
        }
        if let Some(left) = &self.leaves {
            let _ = std::fs::remove_dir(left);
        }
    }
}

async fn sized(rig: &Rig, cpu: u32, memory_mb: u32) -> SandboxId {
    let resources = Resources { cpu, memory_mb, ..config().resources };
    let config = SandboxConfig { resources, ..config() };
    rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone()
}

async fn number(rig: &Rig, id: &SandboxId, text: &str) -> f64 {
    let output = rig.output(id, text).await.unwrap();
    output.trim().parse().unwrap_or_else(|_| panic!("{text:?} says {output:?}"))
}

async fn shows(rig: &Rig, id: &SandboxId, cpu: u32, memory_mb: u32) {
    let (cpu, memory_mb) = (f64::from(cpu), f64::from(memory_mb));
    assert_eq!(number(rig, id, "awk '/^MemTotal:/ { print $2 }' /proc/meminfo").await, memory_mb * 1024.0);
    assert_eq!(number(rig, id, "free -m | awk '/^Mem:/ { print $2 }'").await, memory_mb);
    assert_eq!(number(rig, id, "free -m | awk '/^Swap:/ { print $2 }'").await, 0.0);
    // Nothing much runs in it; the host uses more.
    let used = number(rig, id, "free -m | awk '/^Mem:/ { print $3 }'").await;
    assert!(used < 64.0, "{used} MB are said to be used");
    assert_eq!(number(rig, id, "grep -c ^processor /proc/cpuinfo").await, cpu);
    assert_eq!(number(rig, id, "grep -c '^cpu[0-9]' /proc/stat").await, cpu);
    assert_eq!(number(rig, id, "nproc").await, cpu);
}

/// Whether an lxcfs can run here; says so where it cannot.
fn can_run(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).any(|dir| dir.join("lxcfs").exists());
    let lacking =
        [(installed, "lxcfs is not installed"), (Path::new("/dev/fuse").exists(), "there is no /dev/fuse")];
    match lacking.iter().find(|(is_there, _)| !is_there) {
        Some((_, reason)) => {
            skipped(name, reason);
            false
        }
        None => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_sees_its_own_figures() {
    if !can_run("a_sandbox_sees_its_own_figures") {
        return;
    }
    let lxcfs = Lxcfs::start();
    let options = RigOptions { lxcfs: Some(lxcfs.dir()), pool: 1, ..RigOptions::default() };
    with_rig(options, async |rig| {
        // Made for its size: the pool has another size of disk.
        let resources = Resources { cpu: 1, memory_mb: 512, disk_mb: 64 };
        let config = SandboxConfig { resources, ..config() };
        let made =
            rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone();
        shows(rig, &made, 1, 512).await;
        let host_uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let host_uptime: f64 = host_uptime.split(' ').next().unwrap().parse().unwrap();
        let uptime = number(rig, &made, "cut -d' ' -f1 /proc/uptime").await;
        assert!(uptime < 60.0 && uptime < host_uptime, "up for {uptime} s on a host up for {host_uptime} s");

        // One from the pool shows what it was given when it was taken.
        rig.pool_is_full().await;
        let ready = rig.driver.list().await.unwrap();
        let taken = sized(rig, 1, 1024).await;
        assert!(ready.contains(&taken), "{taken} is not from the pool");
        shows(rig, &taken, 1, 1024).await;
        // Nobody inside can take the figures away or write through them.
        let result = rig
            .run(&taken, "umount /proc/meminfo || echo x > /proc/meminfo || echo x > /proc/uptime")
            .await
            .unwrap();
        assert_ne!(result.exit_code, Some(0), "{result:?}");
        shows(rig, &made, 1, 512).await;
    })
    .await;
}

const SANDBOXES: &str = "/v1/sandboxes";
const PATIENCE: Duration = Duration::from_secs(20);

/// A service as it is installed: nothing is said of lxcfs.
async fn default_service() -> Service {
    Service::start(&ServiceOptions::default().with("runtime", "lxcfs", "\"auto\"")).await.unwrap()
}

async fn created(client: &Client, memory_mb: u32) -> String {
    let body = json!({ "image": Service::image(), "resources": { "memoryMb": memory_mb } });
    let sandbox = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
    sandbox["id"].as_str().unwrap().to_owned()
}

async fn prints(client: &Client, id: &str, command: &str) -> String {
    let path = format!("{SANDBOXES}/{id}/execute");
    let result = client
        .post(&path, &json!({ "command": command, "timeoutMs": 5_000 }))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    assert_eq!(result["exitCode"], 0, "{command}: {result}");
    result["stdout"].as_str().unwrap().trim().to_owned()
}

const TOTAL_MB: &str = "free -m | awk '/^Mem:/ { print $2 }'";

/// The process of the service's own lxcfs; none where the host runs one.
fn own_lxcfs(service: &Service) -> Option<i32> {
    let text = std::fs::read_to_string(service.place.run.join("lxcfs.pid")).ok()?;
    text.trim().parse().ok()
}

fn lives(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_service_shows_the_sandboxs_own_memory() {
    if !can_run("a_default_service_shows_the_sandboxs_own_memory") {
        return;
    }
    let service = default_service().await;
    let client = service.account().await.unwrap();
    let first = created(&client, 2048).await;
    assert_eq!(prints(&client, &first, TOTAL_MB).await, "2048");
    assert_eq!(
        prints(&client, &first, "grep -c ^processor /proc/cpuinfo").await,
        prints(&client, &first, "nproc").await
    );

    // The next daemon takes it over, also after a crash.
    let before = own_lxcfs(&service);
    service.kill().unwrap();
    service.boot().await.unwrap();
    assert_eq!(own_lxcfs(&service), before);
    assert_eq!(prints(&client, &first, TOTAL_MB).await, "2048");
    let second = created(&client, 4096).await;
    assert_eq!(prints(&client, &second, TOTAL_MB).await, "4096");

    // With the last sandbox gone a daemon that stops leaves none.
    for id in [first, second] {
        client.delete(&format!("{SANDBOXES}/{id}")).await.unwrap();
    }
    service.signal(rustix::process::Signal::TERM).unwrap();
    service.gone(PATIENCE).await.unwrap();
    if let Some(pid) = before {
        becomes(|| !lives(pid)).await;
        assert_eq!(own_lxcfs(&service), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_survive_the_death_of_lxcfs() {
    if !can_run("sandboxes_survive_the_death_of_lxcfs") {
        return;
    }
    let service = default_service().await;
    let client = service.account().await.unwrap();
    let Some(pid) = own_lxcfs(&service) else {
        return skipped("sandboxes_survive_the_death_of_lxcfs", "the host runs an lxcfs of its own");
    };
    let old = created(&client, 2048).await;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    becomes(|| own_lxcfs(&service).is_some_and(|next| next != pid && lives(next))).await;
    // What the old sandbox reads there fails at once; all else of it goes on.
    let begun = Instant::now();
    let path = format!("{SANDBOXES}/{old}/execute");
    let read = json!({ "command": "cat /proc/meminfo; echo $?", "timeoutMs": 10_000 });
    client.post(&path, &read).await.unwrap().is(200).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    assert_eq!(prints(&client, &old, "echo on; id -u").await, "on\n0");
    let new = created(&client, 4096).await;
    assert_eq!(prints(&client, &new, TOTAL_MB).await, "4096");
}

async fn becomes(holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "it does not come true");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
