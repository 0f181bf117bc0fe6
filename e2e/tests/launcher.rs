//! Attacks on the launcher itself: one for each class of published escapes of container runtimes that can be tried, and starts that
//! are interrupted. docs/isolation.md lists the classes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use api::{Isolation, SandboxId};
use driver::{DriverError, Limits, Presence, SandboxSpec, Sandboxes};
use driver_host::{DiskRates, HostDriver, Settings};
use driver_native::Native;
use e2e::{CleanupGuard, Rig, RigLayout, RigOptions, with_rig};

/// Set in the process that has a false null device.
const FALSE_NULL: &str = "SANDBOXD_TEST_FALSE_NULL";

/// One test kills all launchers of this process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

struct Site {
    driver: HostDriver,
    layout: RigLayout,
    _cleanup: CleanupGuard,
}

impl Site {
    fn new() -> Self {
        let layout = RigLayout::unused();
        let backend: Box<dyn driver_host::Backend> = Box::new(Native::new(e2e::launcher().unwrap()).unwrap());
        let settings = Settings {
            agent: e2e::agent().unwrap(),
            data_dir: layout.data.clone(),
            run_dir: layout.run.clone(),
            cgroup_parent: layout.name.clone(),
            uid_base: layout.uid_base,
            pids_max: 64,
            disk_rates: DiskRates::default(),
            memory_max_mb: None,
            lxcfs: None,
            minimum_isolation: Isolation::Container,
            resolver: Some(Ipv4Addr::new(192, 0, 2, 53)),
        };
        let cleanup = CleanupGuard::new(&layout, &RigOptions::default());
        Self {
            driver: HostDriver::new(settings, [(Isolation::Container, backend)].into()).unwrap(),
            layout,
            _cleanup: cleanup,
        }
    }

    /// A sandbox of an image with one layer above the usual one.
    fn spec(&self, slot: u32, layer: &Path) -> SandboxSpec {
        SandboxSpec {
            id: format!("sb_launchertest{slot:06}").parse().unwrap(),
            slot,
            layers: vec![layer.to_owned(), e2e::rootfs().unwrap()],
            disk_from: None,
            processes_from: None,
            limits: Limits { cpu: 1, memory_mb: 256 },
            disk_mb: 512,
            isolation: Isolation::Container,
        }
    }

    fn first_process(&self, id: &SandboxId) -> i32 {
        let file = self.layout.run.join("sandboxes").join(id.as_str()).join("first.pid");
        fs::read_to_string(file).unwrap().trim().parse().unwrap()
    }
}

async fn start(driver: &HostDriver, spec: &SandboxSpec) -> Result<(), DriverError> {
    driver.create(spec).await?;
    driver.start(spec, None).await
}

/// CVE-2024-21626: a descriptor or working directory of the host leaks into the first process.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_process_has_nothing_open_from_the_host() {
    let _alone = ALONE.lock().await;
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let id = rig.create().await.unwrap();
        let agent = PathBuf::from(format!("/proc/{}", rig.host_pids(&id).unwrap()[0]));
        let log = rig.run.join("sandboxes").join(id.as_str()).join("agent.log");
        for entry in fs::read_dir(agent.join("fd")).unwrap() {
            let target = fs::read_link(entry.unwrap().path()).unwrap();
            let name = target.to_str().unwrap();
            // Its own /proc is that of the sandbox.
            let is_expected = target == Path::new("/dev/null")
                || target == Path::new("/proc")
                || name.starts_with("socket:")
                || name.starts_with("anon_inode:[eventpoll]")
                || name.starts_with("anon_inode:[signalfd]")
                || target == log;
            assert!(is_expected, "the agent has {name} open");
        }
        let root = fs::metadata(agent.join("root")).unwrap();
        let here = fs::metadata(agent.join("cwd")).unwrap();
        assert_eq!((root.dev(), root.ino()), (here.dev(), here.ino()));
        assert_ne!(root.dev(), fs::metadata("/").unwrap().dev());
        let environment = fs::read(agent.join("environ")).unwrap();
        assert!(environment.is_empty(), "{}", String::from_utf8_lossy(&environment));
    })
    .await;
}

/// CVE-2019-5736: a process of the container gets hold of a program of the host.
#[tokio::test(flavor = "multi_thread")]
async fn no_program_of_the_host_runs_in_a_sandbox() {
    let _alone = ALONE.lock().await;
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let id = rig.create().await.unwrap();
        rig.output(&id, "sleep 100 >/dev/null 2>&1 & exec 3<&-; true").await.unwrap();
        for pid in rig.host_pids(&id).unwrap() {
            let name = fs::read_link(format!("/proc/{pid}/exe")).unwrap();
            let inside = fs::metadata(format!("/proc/{pid}/root{}", name.display())).unwrap();
            let program = fs::metadata(format!("/proc/{pid}/exe")).unwrap();
            assert_eq!((inside.dev(), inside.ino()), (program.dev(), program.ino()), "process {pid} runs {name:?} of the host");
        }
        let write = "for file in /proc/1/exe /dev/sandbox-agent; do (: >>$file) 2>/dev/null && echo $file; done; true";
        assert_eq!(rig.output(&id, write).await.unwrap(), "");
    })
    .await;
}

/// CVE-2021-30465: a link of the image in the place of a mount leads to the host.
#[tokio::test(flavor = "multi_thread")]
async fn links_of_an_image_do_not_lead_mounts_astray() {
    let _alone = ALONE.lock().await;
    let site = Site::new();
    let outside = site.layout.data.join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "untouched").unwrap();
    let targets = [
        outside.join("file").display().to_string(),
        outside.join("missing").display().to_string(),
        format!("/proc/self/root{}", outside.join("missing").display()),
        "../../../../../../../../etc/hostname".to_owned(),
        "/etc/resolv.conf".to_owned(),
    ];
    for (slot, target) in targets.iter().enumerate() {
        let layer = site.layout.data.join(format!("layer{slot}"));
        for dir in ["etc", "run"] {
            fs::create_dir_all(layer.join(dir)).unwrap();
        }
        symlink(target, layer.join("etc/resolv.conf")).unwrap();
        for name in ["proc", "sys", "dev"] {
            symlink(&outside, layer.join(name)).unwrap();
        }
        let spec = site.spec(u32::try_from(slot).unwrap(), &layer);
        start(&site.driver, &spec).await.unwrap();
        let root = PathBuf::from(format!("/proc/{}/root", site.first_process(&spec.id)));
        let inside = fs::read_to_string(root.join("etc/resolv.conf")).unwrap();
        assert!(inside.starts_with("nameserver 192.0.2.53\n"), "{target}: {inside}");
        for name in ["proc", "sys", "dev"] {
            assert!(!root.join(name).is_symlink(), "{target}: /{name}");
        }
        site.driver.destroy(&spec.id).await.unwrap();
    }
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "untouched");
    let left: BTreeSet<_> = fs::read_dir(&outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, BTreeSet::from(["file".into()]));
}

/// CVE-2025-31133: something else is in the place of the null device. In a mount namespace of its own, so that the host keeps its
/// device.
#[tokio::test(flavor = "multi_thread")]
async fn a_false_null_device_fails_the_start() {
    let _alone = ALONE.lock().await;
    if std::env::var_os(FALSE_NULL).is_some() {
        let site = Site::new();
        let layer = site.layout.data.join("layer");
        fs::create_dir_all(&layer).unwrap();
        let spec = site.spec(0, &layer);
        let error = start(&site.driver, &spec).await.unwrap_err().to_string();
        assert!(error.contains("/dev/null") || error.contains("null device"), "{error}");
        site.driver.destroy(&spec.id).await.unwrap();
        return;
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    // starts: unshare
    let output = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg("mount --bind \"$1\" /dev/null && exec \"$2\" --exact a_false_null_device_fails_the_start --nocapture")
        .arg("sh")
        .arg(file.path())
        .arg(std::env::current_exe().unwrap())
        .env(FALSE_NULL, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// CVE-2025-31133 and CVE-2025-52565: masks that can be lifted, or that are not in force everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn masks_need_no_device_and_cannot_be_lifted() {
    let _alone = ALONE.lock().await;
    with_rig(RigOptions::default(), async |rig: &Rig| {
        let id = rig.create().await.unwrap();
        let script = "test ! -e /dev/console || echo console; \
            rm -f /dev/null 2>/dev/null && echo null; \
            for file in /proc/kallsyms /proc/keys /proc/timer_list; do \
              test -s $file && echo $file; umount $file 2>/dev/null && echo $file; \
              test -f $file || echo $file; done; \
            ls -A /proc/fs /sys/firmware /proc/acpi 2>/dev/null | grep -v :; true";
        assert_eq!(rig.output(&id, script).await.unwrap().trim(), "");
    })
    .await;
}

/// CVE-2025-52881: what the runtime writes to `/proc` reaches other files. The image has such files, and links to others, and the
/// disk shows whether one was written.
#[tokio::test(flavor = "multi_thread")]
async fn writes_to_proc_reach_no_file_of_the_image() {
    let _alone = ALONE.lock().await;
    let site = Site::new();
    let layer = site.layout.data.join("layer");
    let proc = layer.join("proc");
    let names = [
        "oom_score_adj",
        "uid_map",
        "gid_map",
        "setgroups",
        "attr/exec",
        "attr/apparmor/exec",
        "attr/fscreate",
    ];
    for dir in ["self", "thread-self", "1", "2", "sys/net/ipv4", "sys/kernel"] {
        for name in names.iter().chain(&["ip_unprivileged_port_start", "hostname"]) {
            let file = proc.join(dir).join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "untouched").unwrap();
        }
    }
    symlink("/sysrq", proc.join("sysrq-trigger")).unwrap();
    fs::write(layer.join("sysrq"), "untouched").unwrap();
    let spec = site.spec(0, &layer);
    start(&site.driver, &spec).await.unwrap();
    let root = PathBuf::from(format!("/proc/{}/root", site.first_process(&spec.id)));
    assert_eq!(fs::read_to_string(root.join("sysrq")).unwrap(), "untouched");
    assert!(fs::read_to_string(root.join("proc/1/status")).unwrap().starts_with("Name:"));
    site.driver.stop(&spec.id).await.unwrap();
    let disk = site.layout.data.join("sandboxes").join(spec.id.as_str()).join("disk.img");
    let written = std::thread::spawn(move || {
        let (mount, _) = driver_host::mount_disk(&disk).unwrap();
        let upper = PathBuf::from(format!("/proc/self/fd/{}/upper", std::os::fd::AsRawFd::as_raw_fd(&mount)));
        let changed = ["proc", "sysrq"].map(|name| upper.join(name));
        // The place of the mount may be there, and nothing in it.
        changed
            .iter()
            .filter(|path| path.is_file() || fs::read_dir(path).is_ok_and(|dir| dir.count() > 0))
            .count()
    });
    assert_eq!(written.join().unwrap(), 0, "a file of the image was written");
    site.driver.destroy(&spec.id).await.unwrap();
}

/// The launchers that this process has started.
fn launchers() -> Vec<i32> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let children = task.unwrap().path().join("children");
        let children = fs::read_to_string(children).unwrap_or_default();
        for pid in children.split_whitespace() {
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if name.starts_with("sandbox-launche") {
                found.push(pid.parse().unwrap());
            }
        }
    }
    found
}

/// A launcher that dies takes the half-built container with it; the sandbox can be started again.
#[tokio::test(flavor = "multi_thread")]
async fn a_killed_launcher_leaves_nothing() {
    let _alone = ALONE.lock().await;
    let site = Site::new();
    let layer = site.layout.data.join("layer");
    fs::create_dir_all(&layer).unwrap();
    let mut interrupted = 0;
    for round in 0..60 {
        let spec = site.spec(round, &layer);
        site.driver.create(&spec).await.unwrap();
        let driver = site.driver.clone();
        let of_start = spec.clone();
        let starting = tokio::spawn(async move { driver.start(&of_start, None).await });
        tokio::time::sleep(Duration::from_micros(u64::from(round) * 150)).await;
        for pid in launchers() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                // Fails if it has ended.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        if starting.await.unwrap().is_err() {
            interrupted += 1;
            site.driver.stop(&spec.id).await.unwrap();
            assert_eq!(site.driver.inspect(&spec.id).await.unwrap(), Presence::Stopped);
            site.driver.start(&spec, None).await.unwrap();
        }
        drop(site.driver.connect(&spec.id).await.unwrap());
        site.driver.destroy(&spec.id).await.unwrap();
    }
    assert!(interrupted > 5, "only {interrupted} starts were interrupted");
    assert_eq!(site.driver.list().await.unwrap(), Vec::new());
    assert_eq!(launchers(), Vec::<i32>::new());
    let disks = fs::read_dir("/sys/block")
        .unwrap()
        .filter_map(|device| fs::read_to_string(device.unwrap().path().join("loop/backing_file")).ok());
    let ours: Vec<_> = disks.filter(|disk| disk.contains(&format!("/{}/", site.layout.name))).collect();
    assert_eq!(ours, Vec::<String>::new());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&site.layout.name), "{mounts}");
}

/// A socket is needed: nobody can use the launcher to get rights, or by accident.
#[test]
fn the_launcher_refuses_to_be_started_by_hand() {
    let program = e2e::launcher().unwrap();
    // starts: sandbox-launcher
    let output = Command::new(program).stdin(std::process::Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("is started by sandboxd only"));
}
