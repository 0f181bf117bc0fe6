//! Programs in a sandbox see its own memory, processors and uptime, by the host's lxcfs or by one that the daemon starts.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "support/skip.rs"]
mod skip;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use api::{Resources, SandboxConfig, SandboxId};
use e2e::service::{Client, SANDBOXES, Service, ServiceOptions};
use e2e::{PATIENCE, Rig, RigOptions, config, wait_until, with_rig};
use serde_json::json;
use skip::skipped;

/// A running lxcfs. It is stopped and unmounted when dropped.
struct Lxcfs {
    child: Child,
    dir: tempfile::TempDir,
    /// A directory that lxcfs creates and does not remove.
    leftover: Option<PathBuf>,
}

impl Lxcfs {
    fn start() -> Self {
        use std::os::unix::fs::PermissionsExt;
        // The root users of sandboxes, which have no rights on the host, must be able to enter it.
        let dir = tempfile::Builder::new()
            .prefix("sandboxd-test-lxcfs-")
            .permissions(std::fs::Permissions::from_mode(0o711))
            .tempdir_in("/run")
            .unwrap();
        let mounted = dir.path().join("mounted");
        std::fs::create_dir(&mounted).unwrap();
        let leftover = Some(PathBuf::from("/run/lxcfs")).filter(|dir| !dir.exists());
        let log = dir.path().join("log");
        let open_log = || std::fs::File::options().append(true).create(true).open(&log).unwrap();
        let child = Command::new("lxcfs")
            .args(["-f", "-p"])
            .args([&dir.path().join("pid"), &mounted])
            .stdout(open_log())
            .stderr(open_log())
            .spawn()
            .unwrap();
        let mut lxcfs = Self { child, dir, leftover };
        let begun = Instant::now();
        while std::fs::read_to_string(mounted.join("proc/meminfo")).unwrap_or_default().is_empty() {
            let ended = lxcfs.child.try_wait().unwrap();
            assert!(ended.is_none(), "lxcfs has ended: {}", std::fs::read_to_string(&log).unwrap());
            assert!(begun.elapsed() < PATIENCE, "lxcfs does not answer");
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
        // After SIGTERM it unmounts itself.
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
        if let Some(left) = &self.leftover {
            let _ = std::fs::remove_dir(left);
        }
    }
}

async fn create_with_size(rig: &Rig, cpu: u32, memory_mb: u32) -> SandboxId {
    let resources = Resources { cpu, memory_mb, ..config().resources };
    let config = SandboxConfig { resources, ..config() };
    rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone()
}

async fn number(rig: &Rig, id: &SandboxId, text: &str) -> f64 {
    let output = rig.output(id, text).await.unwrap();
    output.trim().parse().unwrap_or_else(|_| panic!("{text:?} printed {output:?}"))
}

async fn assert_shows(rig: &Rig, id: &SandboxId, cpu: u32, memory_mb: u32) {
    let (cpu, memory_mb) = (f64::from(cpu), f64::from(memory_mb));
    assert_eq!(number(rig, id, "awk '/^MemTotal:/ { print $2 }' /proc/meminfo").await, memory_mb * 1024.0);
    assert_eq!(number(rig, id, "free -m | awk '/^Mem:/ { print $2 }'").await, memory_mb);
    assert_eq!(number(rig, id, "free -m | awk '/^Swap:/ { print $2 }'").await, 0.0);
    // Few processes run in it; the host uses more.
    let used = number(rig, id, "free -m | awk '/^Mem:/ { print $3 }'").await;
    assert!(used < 64.0, "{used} MB are reported as used");
    assert_eq!(number(rig, id, "grep -c ^processor /proc/cpuinfo").await, cpu);
    assert_eq!(number(rig, id, "grep -c '^cpu[0-9]' /proc/stat").await, cpu);
    assert_eq!(number(rig, id, "nproc").await, cpu);
}

/// Whether lxcfs can run here. If not, the test is recorded as skipped.
fn can_run(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).any(|dir| dir.join("lxcfs").exists());
    let requirements =
        [(installed, "lxcfs is not installed"), (Path::new("/dev/fuse").exists(), "there is no /dev/fuse")];
    match requirements.iter().find(|(is_there, _)| !is_there) {
        Some((_, reason)) => {
            skipped(name, reason);
            false
        }
        None => true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_sees_its_own_limits() {
    if !can_run("a_sandbox_sees_its_own_limits") {
        return;
    }
    let lxcfs = Lxcfs::start();
    let options = RigOptions { lxcfs: Some(lxcfs.dir()), pool: 1, ..RigOptions::default() };
    with_rig(options, async |rig| {
        // Not claimed from the pool, which has another size of disk.
        let resources = Resources { cpu: 1, memory_mb: 512, disk_mb: 64 };
        let config = SandboxConfig { resources, ..config() };
        let created =
            rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone();
        assert_shows(rig, &created, 1, 512).await;
        let host_uptime = std::fs::read_to_string("/proc/uptime").unwrap();
        let host_uptime: f64 = host_uptime.split(' ').next().unwrap().parse().unwrap();
        let uptime = number(rig, &created, "cut -d' ' -f1 /proc/uptime").await;
        assert!(uptime < 60.0 && uptime < host_uptime, "up for {uptime} s on a host up for {host_uptime} s");

        // A sandbox from the pool shows the limits set when it was claimed.
        rig.wait_for_full_pool().await;
        let ready = rig.driver.list().await.unwrap();
        let claimed = create_with_size(rig, 1, 1024).await;
        assert!(ready.contains(&claimed), "{claimed} is not from the pool");
        assert_shows(rig, &claimed, 1, 1024).await;
        // Processes in the sandbox can neither unmount the files nor write to them.
        let result = rig
            .run(&claimed, "umount /proc/meminfo || echo x > /proc/meminfo || echo x > /proc/uptime")
            .await
            .unwrap();
        assert_ne!(result.exit_code, Some(0), "{result:?}");
        assert_shows(rig, &created, 1, 512).await;
    })
    .await;
}

const TIMEOUT: Duration = Duration::from_secs(20);

/// A service with the default setting of lxcfs.
async fn default_service() -> Service {
    Service::start(&ServiceOptions::default().with("runtime", "lxcfs", "\"auto\"")).await.unwrap()
}

async fn create(client: &Client, memory_mb: u32) -> String {
    let body = json!({ "image": Service::image(), "resources": { "memoryMb": memory_mb } });
    let sandbox = client.post(SANDBOXES, &body).await.unwrap().is(201).unwrap();
    sandbox["id"].as_str().unwrap().to_owned()
}

async fn output(client: &Client, id: &str, command: &str) -> String {
    let path = format!("{SANDBOXES}/{id}/execute");
    let result = client
        .post(&path, &json!({ "command": command, "timeoutMs": 60_000 }))
        .await
        .unwrap()
        .is(200)
        .unwrap();
    assert_eq!(result["exitCode"], 0, "{command}: {result}");
    result["stdout"].as_str().unwrap().trim().to_owned()
}

const TOTAL_MB: &str = "free -m | awk '/^Mem:/ { print $2 }'";

/// The process of the lxcfs that the service started; none if the host runs one.
fn own_lxcfs(service: &Service) -> Option<i32> {
    let text = std::fs::read_to_string(service.layout.run.join("lxcfs.pid")).ok()?;
    text.trim().parse().ok()
}

fn is_alive(pid: i32) -> bool {
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
    let first = create(&client, 2048).await;
    assert_eq!(output(&client, &first, TOTAL_MB).await, "2048");
    assert_eq!(
        output(&client, &first, "grep -c ^processor /proc/cpuinfo").await,
        output(&client, &first, "nproc").await
    );

    // The next daemon takes over the running lxcfs, also after a crash.
    let before = own_lxcfs(&service);
    service.kill().unwrap();
    service.start_process().await.unwrap();
    assert_eq!(own_lxcfs(&service), before);
    assert_eq!(output(&client, &first, TOTAL_MB).await, "2048");
    let second = create(&client, 4096).await;
    assert_eq!(output(&client, &second, TOTAL_MB).await, "4096");

    // A daemon that stops without sandboxes leaves no lxcfs.
    for id in [first, second] {
        client.delete(&format!("{SANDBOXES}/{id}")).await.unwrap();
    }
    service.signal(rustix::process::Signal::TERM).unwrap();
    service.wait_for_exit(TIMEOUT).await.unwrap();
    if let Some(pid) = before {
        wait_until("lxcfs ends", async || !is_alive(pid)).await;
        assert_eq!(own_lxcfs(&service), None);
    }
}

/// Whether a process has this path as an argument.
fn is_used(path: &Path) -> bool {
    let names = |text: Vec<u8>| {
        text.split(|byte| *byte == 0).any(|argument| argument == path.as_os_str().as_encoded_bytes())
    };
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.any(|process| std::fs::read(process.path().join("cmdline")).is_ok_and(names))
}

/// The start fails when the engine is open, after lxcfs was started.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_fails_leaves_no_lxcfs() {
    if !can_run("a_start_that_fails_leaves_no_lxcfs") {
        return;
    }
    let service = Service::new(&ServiceOptions::default().with("runtime", "lxcfs", "\"auto\"")).unwrap();
    std::fs::write(service.layout.data.join("local.key"), "no key").unwrap();
    let output = service.program().unwrap().arg("serve").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && stderr.contains("local.key"), "{stderr}");
    assert_eq!(own_lxcfs(&service), None);
    let dir = service.layout.run.join("lxcfs");
    wait_until("lxcfs ends", async || !is_used(&dir)).await;
    assert!(!dir.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn sandboxes_survive_the_death_of_lxcfs() {
    if !can_run("sandboxes_survive_the_death_of_lxcfs") {
        return;
    }
    let service = default_service().await;
    let client = service.account().await.unwrap();
    let Some(pid) = own_lxcfs(&service) else {
        return skipped("sandboxes_survive_the_death_of_lxcfs", "the host runs its own lxcfs");
    };
    let old = create(&client, 2048).await;
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    wait_until("lxcfs is started again", async || {
        own_lxcfs(&service).is_some_and(|next| next != pid && is_alive(next))
    })
    .await;
    // Reads of lxcfs files in the old sandbox fail immediately; everything else works.
    let begun = Instant::now();
    let path = format!("{SANDBOXES}/{old}/execute");
    let read = json!({ "command": "cat /proc/meminfo; echo $?", "timeoutMs": 10_000 });
    client.post(&path, &read).await.unwrap().is(200).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(5), "it took {:?}", begun.elapsed());
    assert_eq!(output(&client, &old, "echo on; id -u").await, "on\n0");
    let new = create(&client, 4096).await;
    assert_eq!(output(&client, &new, TOTAL_MB).await, "4096");
}

/// Ways to keep a file open, each in `hold`, which returns whether it could.
const WAYS: [(&str, &str); 3] = [
    ("descriptors", "sub hold { defined POSIX::open('/proc/meminfo', O_RDONLY) }"),
    (
        "mappings",
        "sub hold { open(my $file, '<', '/proc/meminfo') or return 0; syscall(MMAP, 0, 4096, 1, 2, fileno $file, 0) > 0 }",
    ),
    (
        "messages",
        "sub hold {
            our @ends; socketpair($ends[@ends], $ends[@ends + 1], AF_UNIX, SOCK_STREAM, 0) or return 0;
            my @files = map { POSIX::open('/proc/meminfo', O_RDONLY) } 1 .. 250;
            my ($data, $control) = ('x', pack('Qll', 16 + 4 * @files, SOL_SOCKET, 1) . pack('l*', @files));
            my $vector = pack('PQ', $data, 1);
            my $message = pack('QLx4PQPQlx4', 0, 0, $vector, 1, $control, length $control, 0);
            my $sent = syscall(SENDMSG, fileno $ends[-2], $message, 0) > 0; POSIX::close($_) for @files; $sent;
        }",
    ),
];
/// In 20 processes of other users: each user may have a number of descriptors in messages.
const HOLD: &str = "
    use POSIX; use Socket;
    for my $number (1 .. 20) {
        next if fork;
        POSIX::setuid(1000 + $number);
        for (1 .. 19_000) { hold() or last }
        sleep 60; exit;
    }
    sleep 60; print 'survived';
";
/// The least memory of lxcfs at which files are counted is 64 MB, and it grows until they are counted.
const LXCFS_MAX_MB: u64 = 320;

fn memory_mb(pid: u32) -> u64 {
    e2e::process::peak_kb(pid).unwrap() / 1024
}

/// Each open file takes memory of lxcfs, which is charged to nobody. All files of this test would take 600 MB.
#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_hoards_files_of_lxcfs_is_ended() {
    if !can_run("a_program_that_hoards_files_of_lxcfs_is_ended") {
        return;
    }
    let lxcfs = Lxcfs::start();
    with_rig(RigOptions { lxcfs: Some(lxcfs.dir()), ..RigOptions::default() }, async |rig| {
        let neighbour = rig.create().await.unwrap();
        let few = "perl -e 'open($held[@held], q(<), q(/proc/meminfo)) for 1 .. 1000; sleep 600' > /dev/null 2>&1 &";
        rig.output(&neighbour, few).await.unwrap();
        for (way, hold) in WAYS {
            let hoarder = rig.create().await.unwrap();
            let script = format!("{HOLD}{hold}").replace("MMAP", &libc::SYS_mmap.to_string());
            let script = script.replace("SENDMSG", &libc::SYS_sendmsg.to_string());
            let result = rig.run_with_stdin(&hoarder, "exec perl -", &script).await.unwrap();
            let ended = (result.stdout.as_str(), result.signal.as_deref());
            let memory = memory_mb(lxcfs.child.id());
            println!("{way}: {ended:?}, lxcfs has {memory} MB");
            assert_eq!(ended, ("", Some("SIGKILL")), "{way}: {result:?}, lxcfs has {memory} MB");
            assert!(memory < LXCFS_MAX_MB, "{way}: lxcfs has {memory} MB");
            // Whatever runs while the programs end is killed with them.
            let begun = Instant::now();
            while rig.output(&hoarder, "echo alive").await.is_err() {
                assert!(begun.elapsed() < PATIENCE, "{way}: no command works any more");
            }
        }
        assert_eq!(rig.output(&neighbour, "pgrep -c perl").await.unwrap(), "1\n");
    })
    .await;
}

/// Whoever holds them: programs of the host do here.
#[tokio::test(flavor = "multi_thread")]
async fn an_lxcfs_with_too_many_open_files_is_started_again() {
    const FILES: u64 = 900_000;
    const FILES_OF_A_PROGRAM: u64 = 15_000;
    let name = "an_lxcfs_with_too_many_open_files_is_started_again";
    if !can_run(name) {
        return;
    }
    let service = default_service().await;
    let Some(pid) = own_lxcfs(&service) else { return skipped(name, "the host runs its own lxcfs") };
    let file = service.layout.run.join("lxcfs/proc/meminfo");
    let hold = format!(
        "import os, resource, time\nhard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n\
         resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n\
         try:\n  for _ in range({FILES_OF_A_PROGRAM}): os.open('{}', os.O_RDONLY)\n\
         except OSError: pass\ntime.sleep(600)",
        file.display()
    );
    let mut programs: Vec<Child> = (0..FILES / FILES_OF_A_PROGRAM)
        .map(|_| Command::new("python3").args(["-c", &hold]).spawn().unwrap())
        .collect();
    let begun = Instant::now();
    while is_alive(pid) && begun.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for program in &mut programs {
        // It may have ended.
        let _ = program.kill();
        program.wait().unwrap();
    }
    assert!(!is_alive(pid), "lxcfs goes on after {:?}: {}", begun.elapsed(), service.log_tail());
    wait_until("lxcfs is started again", async || {
        own_lxcfs(&service).is_some_and(|next| next != pid && is_alive(next))
    })
    .await;
    let client = service.account().await.unwrap();
    let new = create(&client, 4096).await;
    assert_eq!(output(&client, &new, TOTAL_MB).await, "4096");
}
