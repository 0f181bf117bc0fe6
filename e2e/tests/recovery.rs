//! Recovery at the start of the daemon: after a kill, after a reboot, after incomplete operations, and with a damaged disk.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use api::{SandboxId, SandboxState};
use driver::{Presence, SandboxSpec};
use e2e::{
    CleanupGuard, Daemon, Expected, HaltedRig, Rig, RigLayout, RigOptions, command, wait_for_resources,
};
use engine::Recovered;

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");
const LOST: &str = "its processes ended unexpectedly; its disk is unchanged";

/// Leaves a file and a background process; returns its process id inside the sandbox.
async fn mark(rig: &Rig, id: &SandboxId) -> u32 {
    let output =
        rig.output(id, "echo kept > marker; sleep 4321 </dev/null >/dev/null 2>&1 & echo $!").await.unwrap();
    output.trim().parse().unwrap()
}

async fn assert_marked(rig: &Rig, id: &SandboxId, pid: u32) {
    let found = rig.output(id, &format!("cat marker; kill -0 {pid} && echo alive")).await.unwrap();
    assert_eq!(found, "kept\nalive\n", "{id}");
}

async fn events(rig: &Rig, id: &SandboxId) -> Vec<store::Event> {
    rig.lifecycle_events(id).await.unwrap()
}

async fn assert_on_host(rig: &Rig, alive: &[&SandboxId], stopped: &[&SandboxId]) {
    let set = |ids: &[&SandboxId]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
    let strays = wait_for_resources(
        rig.layout(),
        &Expected { alive: set(alive), stopped: set(stopped), ..Expected::default() },
    )
    .await;
    assert!(strays.is_empty(), "{}", strays.join("\n"));
}

/// The sandbox's cgroups in all hierarchies.
fn cgroups(layout: &RigLayout, name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut dirs = vec![root.join(&layout.name).join(name)];
    dirs.extend(
        fs::read_dir(root).unwrap().flatten().map(|entry| entry.path().join(&layout.name).join(name)),
    );
    dirs.retain(|dir| dir.is_dir());
    dirs
}

/// Simulates a reboot: removes all processes, all cgroups and the run directory.
async fn reboot(halted: &mut HaltedRig) {
    // The daemon has ended too, and holds nothing open.
    halted.driver = Arc::new(halted.layout.driver(&halted.options).unwrap());
    for id in halted.driver.list().await.unwrap() {
        halted.driver.kill(&id).await.unwrap();
        for dir in cgroups(&halted.layout, id.as_str()) {
            // Possible only after the last process has ended. Subdirectories were created by the runtime.
            while dir.exists() && fs::remove_dir(&dir).is_err() {
                for below in
                    fs::read_dir(&dir).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir())
                {
                    let _ = fs::remove_dir(below.path());
                }
                tokio::task::yield_now().await;
            }
        }
    }
    fs::remove_dir_all(&halted.layout.run).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_sandboxes_and_their_processes_survive_a_kill_of_the_daemon() {
    let layout = RigLayout::unused();
    let _cleanup = CleanupGuard::new(&layout, &RigOptions::default());
    let daemon = Daemon::start(Path::new(VICTIM), &layout, 0, 64).unwrap();
    assert_eq!(daemon.ready().await.unwrap().orphans, 0);
    let mut marked = Vec::new();
    for number in 0..20 {
        let id = daemon.expect_ok("create").await.unwrap();
        let text = "echo kept > marker; sleep 4321 </dev/null >/dev/null 2>&1 & echo $!";
        let pid = daemon
            .expect_ok(&format!("exec {id} {text}"))
            .await
            .unwrap()
            .trim_start_matches("0 ")
            .trim()
            .to_owned();
        if number % 4 == 0 {
            daemon.expect_ok(&format!("pause {id}")).await.unwrap();
        }
        marked.push((id, pid));
    }
    // The sandboxes belong to neither the process group nor the session of the daemon.
    daemon.kill().await.unwrap();
    let daemon = Daemon::start(Path::new(VICTIM), &layout, 0, 64).unwrap();
    let found = daemon.ready().await.unwrap();
    assert_eq!((found.running, found.paused, found.stopped, found.orphans), (15, 5, 0, 0));
    assert!(found.took_ms < 2000, "recovery took {} ms", found.took_ms);
    for (number, (id, pid)) in marked.iter().enumerate() {
        let expected = if number % 4 == 0 { "paused" } else { "running" };
        assert_eq!(daemon.expect_ok(&format!("state {id}")).await.unwrap(), expected);
        let inside =
            daemon.expect_ok(&format!("exec {id} cat marker; kill -0 {pid} && echo alive")).await.unwrap();
        assert_eq!(inside, "0 kept\nalive\n", "{id}");
        daemon.expect_ok(&format!("destroy {id}")).await.unwrap();
    }
    let strays = wait_for_resources(&layout, &Expected { daemon: daemon.pid(), ..Expected::default() }).await;
    assert!(strays.is_empty(), "{}", strays.join("\n"));
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn incomplete_creates_are_rolled_back() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let kept = rig.create().await.unwrap();
    let spec = |id: &str, slot| SandboxSpec {
        id: id.parse().unwrap(),
        slot,
        layers: rig.template.layers.clone(),
        disk_from: None,
        processes_from: None,
        limits: driver::Limits { cpu: 2, memory_mb: 2048 },
        disk_mb: 5120,
        isolation: Default::default(),
    };
    let (created, started) = (spec("sb_halfmade", 900), spec("sb_halfstarted", 901));
    let partial = rig.data.join("sandboxes/sb_halfcopied");
    let halted = rig.halt().await;
    halted.driver.create(&created).await.unwrap();
    halted.driver.create(&started).await.unwrap();
    halted.driver.start(&started, None).await.unwrap();
    fs::create_dir_all(&partial).unwrap();
    fs::write(partial.join("disk.img.new"), vec![0; 4096]).unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { running: 1, orphans: 3, ..Recovered::default() });
    assert_on_host(&rig, &[&kept], &[]).await;
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uncommitted_pause_and_resume_are_rolled_back() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let (running, paused) = (rig.create().await.unwrap(), rig.create().await.unwrap());
    let (running_pid, paused_pid) = (mark(&rig, &running).await, mark(&rig, &paused).await);
    rig.engine.sandbox("test", &paused).pause().await.unwrap();
    let (events_of_running, events_of_paused) = (events(&rig, &running).await, events(&rig, &paused).await);

    let halted = rig.halt().await;
    halted.driver.pause(&running).await.unwrap();
    halted.driver.resume(&paused).await.unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { running: 1, paused: 1, ..Recovered::default() });
    assert_eq!(rig.driver.inspect(&running).await.unwrap(), Presence::Running);
    assert_eq!(rig.driver.inspect(&paused).await.unwrap(), Presence::Paused);
    assert_eq!(rig.state(&running).await.unwrap(), SandboxState::Running);
    assert_eq!(rig.state(&paused).await.unwrap(), SandboxState::Paused);
    // The operations were not reported, so their rollback is not reported either.
    assert_eq!(events(&rig, &running).await, events_of_running);
    assert_eq!(events(&rig, &paused).await, events_of_paused);
    assert_marked(&rig, &running, running_pid).await;
    assert_marked(&rig, &paused, paused_pid).await;
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_sandboxes_are_paused_and_can_be_resumed() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let (running, paused) = (rig.create().await.unwrap(), rig.create().await.unwrap());
    let config = api::SandboxConfig { workdir: "/srv/deep/er".to_owned(), ..e2e::config() };
    let elsewhere =
        rig.engine.create("test", config, rig.template.clone(), None).await.unwrap().record.id.clone();
    for id in [&running, &paused, &elsewhere] {
        mark(&rig, id).await;
    }
    rig.engine.sandbox("test", &paused).pause().await.unwrap();
    let terminated = rig.create().await.unwrap();
    rig.engine.sandbox("test", &terminated).terminate("request").await.unwrap();

    let started_ms =
        rig.engine.sandbox("test", &running).status().await.unwrap().record.lifecycle.started_at().unwrap().0;
    let mut halted = rig.halt().await;
    reboot(&mut halted).await;
    // The host may be off for days: the running time ends when the disk was last written.
    let last_write = std::time::UNIX_EPOCH + std::time::Duration::from_millis(started_ms + 7);
    let disk = halted.layout.data.join("sandboxes").join(running.as_str()).join("disk.img");
    fs::File::options().write(true).open(disk).unwrap().set_modified(last_write).unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 3, ..Recovered::default() });
    assert_eq!(
        rig.engine.sandbox("test", &running).status().await.unwrap().record.lifecycle.finished_ms(),
        7
    );
    assert_on_host(&rig, &[], &[&running, &paused, &elsewhere]).await;
    let (_, used) = rig.engine.capacity();
    assert_eq!((used.cpu, used.memory_mb, used.disk_mb), (0, 0, 3 * 5120));
    for id in [&running, &paused, &elsewhere] {
        assert_eq!(rig.state(id).await.unwrap(), SandboxState::Paused);
        let last = events(&rig, id).await.pop().unwrap();
        assert_eq!((last.kind.as_str(), &last.data["message"]), ("sandbox.error", &LOST.into()));
    }

    // A second start records no further events.
    let before = events(&rig, &running).await;
    let rig = rig.restart().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 3, ..Recovered::default() });
    assert_eq!(events(&rig, &running).await, before);

    assert_eq!(rig.output(&running, "cat marker; pwd").await.unwrap(), "kept\n/workspace\n");
    assert_eq!(rig.output(&elsewhere, "cat marker; pwd").await.unwrap(), "kept\n/srv/deep/er\n");
    let resumed = events(&rig, &running).await.pop().unwrap();
    assert_eq!((resumed.kind.as_str(), &resumed.data["note"]), ("sandbox.resumed", &LOST.into()));
    assert!(
        rig.run(&running, "pgrep -x sleep").await.unwrap().exit_code == Some(1),
        "its processes are gone"
    );
    rig.engine.sandbox("test", &paused).resume().await.unwrap();
    assert_eq!(rig.output(&paused, "cat marker").await.unwrap(), "kept\n");
    // The note is recorded once.
    rig.engine.sandbox("test", &running).pause().await.unwrap();
    rig.engine.sandbox("test", &running).resume().await.unwrap();
    assert_eq!(events(&rig, &running).await.pop().unwrap().data.get("note"), None);
    assert_on_host(&rig, &[&running, &paused, &elsewhere], &[]).await;
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_every_kind_are_removed() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let kept = rig.create().await.unwrap();
    let layout = rig.layout().clone();
    let halted = rig.halt().await;

    let disk = layout.data.join("sandboxes/sb_straydisk");
    fs::create_dir_all(&disk).unwrap();
    fs::write(disk.join("disk.img"), "no file system").unwrap();
    fs::create_dir_all(layout.run.join("sandboxes/sb_straybundle/rootfs")).unwrap();
    fs::create_dir_all(layout.run.join("runtime/sb_straystate")).unwrap();
    fs::write(layout.run.join("runtime/sb_straystate/state.json"), "{").unwrap();
    fs::create_dir_all(layout.data.join("templates/new-5120mb-4194305-ThreadId(1)/tree")).unwrap();
    // In every hierarchy: an empty cgroup, and one with a process.
    for hierarchy in cgroups(&layout, kept.as_str()).iter().filter_map(|dir| dir.parent()) {
        fs::create_dir(hierarchy.join("sb_straycgroup")).unwrap();
    }
    let occupied: Vec<PathBuf> = cgroups(&layout, kept.as_str())
        .iter()
        .map(|dir| dir.parent().unwrap().join("sb_strayprocess"))
        .collect();
    // Started by another process, so that it is not a child of this one and need not be waited for.
    let spawned = Command::new("bash").args(["-c", "sleep 4321 >/dev/null 2>&1 & echo $!"]).output().unwrap();
    let stray = String::from_utf8(spawned.stdout).unwrap().trim().to_owned();
    for dir in &occupied {
        fs::create_dir(dir).unwrap();
        inherit_cpuset(dir);
        fs::write(dir.join("cgroup.procs"), &stray).unwrap();
    }

    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered.orphans, 5);
    let status = fs::read_to_string(format!("/proc/{stray}/status")).unwrap_or_default();
    assert!(status.is_empty() || status.contains("State:\tZ"), "{status}");
    assert_on_host(&rig, &[&kept], &[]).await;
    assert_eq!(rig.output(&kept, "echo still here").await.unwrap(), "still here\n");
    rig.clear().await.unwrap();
}

/// A new v1 cpuset accepts no process before it has processors and memory.
fn inherit_cpuset(dir: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(text) = fs::read_to_string(dir.parent().unwrap().join(file)) {
            fs::write(dir.join(file), text.trim()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_dead_clients_end_in_paused_sandboxes_too() {
    let layout = RigLayout::unused();
    let _cleanup = CleanupGuard::new(&layout, &RigOptions::default());
    let daemon = std::sync::Arc::new(Daemon::start(Path::new(VICTIM), &layout, 0, 64).unwrap());
    daemon.ready().await.unwrap();
    let id = daemon.expect_ok("create").await.unwrap();
    let (client, request) = (std::sync::Arc::clone(&daemon), format!("exec {id} touch started; sleep 4322"));
    let waiting = tokio::spawn(async move { client.call(&request).await });
    while daemon.expect_ok(&format!("exec {id} ls")).await.unwrap() != "0 started\n" {}
    daemon.expect_ok(&format!("pause {id}")).await.unwrap();
    daemon.kill().await.unwrap();
    assert_eq!(waiting.await.unwrap(), e2e::CallOutcome::Lost);

    let daemon = Daemon::start(Path::new(VICTIM), &layout, 0, 64).unwrap();
    assert_eq!(daemon.ready().await.unwrap().paused, 1);
    daemon.expect_ok(&format!("resume {id}")).await.unwrap();
    let start = std::time::Instant::now();
    while is_sleep_running(&layout, &id) {
        assert!(start.elapsed().as_secs() < 5, "a resume alone does not end the commands of dead clients");
        tokio::task::yield_now().await;
    }
    daemon.expect_ok(&format!("destroy {id}")).await.unwrap();
    daemon.stop().await.unwrap();
}

/// Whether the command runs. Reads the host's cgroups, because a request would resume the sandbox.
fn is_sleep_running(layout: &RigLayout, id: &str) -> bool {
    let procs = cgroups(layout, id)
        .iter()
        .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
        .collect::<String>();
    procs
        .lines()
        .any(|pid| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default() == b"sleep\x004322\x00")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_without_its_disk_starts_with_an_empty_one() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let id = rig.create().await.unwrap();
    mark(&rig, &id).await;
    let disk = rig.data.join("sandboxes").join(id.as_str()).join("disk.img");
    let mut halted = rig.halt().await;
    reboot(&mut halted).await;
    fs::remove_file(&disk).unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 1, ..Recovered::default() });
    let lost = events(&rig, &id).await.pop().unwrap();
    assert!(lost.data["message"].as_str().unwrap().starts_with("its disk is missing"), "{lost:?}");
    // A second start records no further events.
    let before = events(&rig, &id).await;
    let rig = rig.restart().await.unwrap();
    assert_eq!(events(&rig, &id).await, before);
    assert_eq!(rig.output(&id, "ls; pwd").await.unwrap(), "/workspace\n");
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_disk_is_repaired_and_an_irreparable_one_refused() {
    use std::os::unix::fs::FileExt;
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let (damaged, ruined) = (rig.create().await.unwrap(), rig.create().await.unwrap());
    for id in [&damaged, &ruined] {
        rig.output(id, "echo kept > marker; sync").await.unwrap();
    }
    let disk = |id: &SandboxId| rig.data.join("sandboxes").join(id.as_str()).join("disk.img");
    let (damaged_disk, ruined_disk) = (disk(&damaged), disk(&ruined));
    let mut halted = rig.halt().await;
    reboot(&mut halted).await;
    // Overwrites the group descriptors: the kernel refuses such a file system, e2fsck repairs it from backups.
    let file = fs::File::options().write(true).open(&damaged_disk).unwrap();
    file.write_all_at(&[0xff; 4096], 4096).unwrap();
    let file = fs::File::options().write(true).open(&ruined_disk).unwrap();
    file.set_len(0).unwrap();
    file.set_len(5120 << 20).unwrap();

    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 2, ..Recovered::default() });
    assert_eq!(rig.output(&damaged, "cat marker").await.unwrap(), "kept\n");
    let error = rig.engine.sandbox("test", &ruined).resume().await.unwrap_err();
    assert!(matches!(error, engine::EngineError::Host(engine::HostError::Backend(_))), "{error:?}");
    let Err(error) = rig.engine.sandbox("test", &ruined).execute(command("true")).await else {
        panic!("a command ran without a file system")
    };
    assert!(matches!(error, engine::EngineError::Host(engine::HostError::Backend(_))), "{error:?}");
    // It stays paused and releases the reserved capacity.
    assert_eq!(rig.state(&ruined).await.unwrap(), SandboxState::Paused);
    assert_eq!(rig.engine.capacity().1.cpu, 2);
    assert_on_host(&rig, &[&damaged], &[&ruined]).await;
    rig.engine.sandbox("test", &ruined).terminate("request").await.unwrap();
    assert_on_host(&rig, &[&damaged], &[]).await;
    rig.clear().await.unwrap();
}
