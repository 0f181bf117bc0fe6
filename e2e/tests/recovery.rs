//! What a start finds and mends: after a kill, after a reboot, after half-done verbs, and with a damaged disk.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use api::{SandboxId, SandboxState};
use driver::{Presence, SandboxSpec};
use e2e::{Daemon, Expected, Halted, Place, Rig, RigOptions, Sweeper, command, settled};
use engine::Recovered;

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");
const LOST: &str = "its processes ended unexpectedly; its disk is unchanged";

/// Leaves a file and a process in the background; the process's number inside.
async fn mark(rig: &Rig, id: &SandboxId) -> u32 {
    let output =
        rig.output(id, "echo kept > marker; sleep 4321 </dev/null >/dev/null 2>&1 & echo $!").await.unwrap();
    output.trim().parse().unwrap()
}

async fn is_marked(rig: &Rig, id: &SandboxId, pid: u32) {
    let found = rig.output(id, &format!("cat marker; kill -0 {pid} && echo alive")).await.unwrap();
    assert_eq!(found, "kept\nalive\n", "{id}");
}

async fn state(rig: &Rig, id: &SandboxId) -> SandboxState {
    rig.engine.sandbox("test", id).status().await.unwrap().state()
}

async fn events(rig: &Rig, id: &SandboxId) -> Vec<store::Event> {
    rig.life(id).await.unwrap()
}

async fn assert_on_host(rig: &Rig, alive: &[&SandboxId], stopped: &[&SandboxId]) {
    let set = |ids: &[&SandboxId]| ids.iter().map(|id| (*id).clone()).collect::<BTreeSet<_>>();
    let strays =
        settled(rig.place(), &Expected { alive: set(alive), stopped: set(stopped), daemon: None }).await;
    assert!(strays.is_empty(), "{}", strays.join("\n"));
}

/// The sandbox's cgroups, in whatever hierarchies.
fn cgroups(place: &Place, name: &str) -> Vec<PathBuf> {
    let root = Path::new("/sys/fs/cgroup");
    let mut dirs = vec![root.join(&place.name).join(name)];
    dirs.extend(fs::read_dir(root).unwrap().flatten().map(|entry| entry.path().join(&place.name).join(name)));
    dirs.retain(|dir| dir.is_dir());
    dirs
}

/// What a reboot takes: every process, every cgroup, and all that is below the run directory.
async fn reboot(halted: &Halted) {
    for id in halted.driver.list().await.unwrap() {
        halted.driver.kill(&id).await.unwrap();
        for dir in cgroups(&halted.place, id.as_str()) {
            // Gone with its last process, which may take a moment; sub-directories are the runtime's.
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
    fs::remove_dir_all(&halted.place.run).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_sandboxes_survive_the_daemons_death_with_their_processes() {
    let place = Place::fresh();
    let _sweeper = Sweeper::new(&place, &RigOptions::default());
    let daemon = Daemon::start(Path::new(VICTIM), &place, 0, 64).unwrap();
    assert_eq!(daemon.ready().await.unwrap().orphans, 0);
    let mut marked = Vec::new();
    for number in 0..20 {
        let id = daemon.ask("create").await.unwrap();
        let text = "echo kept > marker; sleep 4321 </dev/null >/dev/null 2>&1 & echo $!";
        let pid = daemon
            .ask(&format!("exec {id} {text}"))
            .await
            .unwrap()
            .trim_start_matches("0 ")
            .trim()
            .to_owned();
        if number % 4 == 0 {
            daemon.ask(&format!("pause {id}")).await.unwrap();
        }
        marked.push((id, pid));
    }
    // Neither the group nor the session of the daemon takes them along.
    daemon.kill().await.unwrap();
    let daemon = Daemon::start(Path::new(VICTIM), &place, 0, 64).unwrap();
    let found = daemon.ready().await.unwrap();
    assert_eq!((found.running, found.paused, found.stopped, found.orphans), (15, 5, 0, 0));
    assert!(found.took_ms < 2000, "recovery took {} ms", found.took_ms);
    for (number, (id, pid)) in marked.iter().enumerate() {
        let expected = if number % 4 == 0 { "paused" } else { "running" };
        assert_eq!(daemon.ask(&format!("state {id}")).await.unwrap(), expected);
        let inside = daemon.ask(&format!("exec {id} cat marker; kill -0 {pid} && echo alive")).await.unwrap();
        assert_eq!(inside, "0 kept\nalive\n", "{id}");
        daemon.ask(&format!("destroy {id}")).await.unwrap();
    }
    let strays = settled(&place, &Expected { daemon: daemon.pid(), ..Expected::default() }).await;
    assert!(strays.is_empty(), "{}", strays.join("\n"));
    daemon.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_was_half_done_is_undone_at_every_point() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let kept = rig.create().await.unwrap();
    let spec = |id: &str, slot| SandboxSpec {
        id: id.parse().unwrap(),
        slot,
        layers: rig.template.layers.clone(),
        limits: driver::Limits { cpu: 2, memory_mb: 2048 },
        disk_mb: 5120,
    };
    let (made, started) = (spec("sb_halfmade", 900), spec("sb_halfstarted", 901));
    let half = rig.data.join("sandboxes/sb_halfcopied");
    let halted = rig.halt().await;
    halted.driver.create(&made).await.unwrap();
    halted.driver.create(&started).await.unwrap();
    halted.driver.start(&started, None).await.unwrap();
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("disk.img.new"), vec![0; 4096]).unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { running: 1, orphans: 3, ..Recovered::default() });
    assert_on_host(&rig, &[&kept], &[]).await;
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_and_a_resume_that_were_not_committed_are_taken_back() {
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
    assert_eq!(state(&rig, &running).await, SandboxState::Running);
    assert_eq!(state(&rig, &paused).await, SandboxState::Paused);
    // Nobody was told of either, so nobody is told of its end.
    assert_eq!(events(&rig, &running).await, events_of_running);
    assert_eq!(events(&rig, &paused).await, events_of_paused);
    is_marked(&rig, &running, running_pid).await;
    is_marked(&rig, &paused, paused_pid).await;
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_reboot_sandboxes_are_paused_on_their_disks_and_start_again() {
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
        rig.engine.sandbox("test", &running).status().await.unwrap().record.started_at.unwrap().0;
    let halted = rig.halt().await;
    reboot(&halted).await;
    // The host may be off for days: a sandbox ran until its disk was last written, and no longer.
    let last_sign = std::time::UNIX_EPOCH + std::time::Duration::from_millis(started_ms + 7);
    let disk = halted.place.data.join("sandboxes").join(running.as_str()).join("disk.img");
    fs::File::options().write(true).open(disk).unwrap().set_modified(last_sign).unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 3, ..Recovered::default() });
    assert_eq!(
        rig.engine.sandbox("test", &running).status().await.unwrap().record.accounting.finished_ms(),
        7
    );
    assert_on_host(&rig, &[], &[&running, &paused, &elsewhere]).await;
    let (_, used) = rig.engine.capacity();
    assert_eq!((used.cpu, used.memory_mb, used.disk_mb), (0, 0, 3 * 5120));
    for id in [&running, &paused, &elsewhere] {
        assert_eq!(state(&rig, id).await, SandboxState::Paused);
        let last = events(&rig, id).await.pop().unwrap();
        assert_eq!((last.kind.as_str(), &last.data["message"]), ("sandbox.error", &LOST.into()));
    }

    // A second start has nothing new to say.
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
    // Said once.
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
    let place = rig.place().clone();
    let halted = rig.halt().await;

    let disk = place.data.join("sandboxes/sb_straydisk");
    fs::create_dir_all(&disk).unwrap();
    fs::write(disk.join("disk.img"), "no file system").unwrap();
    fs::create_dir_all(place.run.join("sandboxes/sb_straybundle/rootfs")).unwrap();
    fs::create_dir_all(place.run.join("runtime/sb_straystate")).unwrap();
    fs::write(place.run.join("runtime/sb_straystate/state.json"), "{").unwrap();
    fs::create_dir_all(place.data.join("templates/new-5120mb-4194305-ThreadId(1)/tree")).unwrap();
    // In every hierarchy, and with a process and a child of it in a group further below.
    for hierarchy in cgroups(&place, kept.as_str()).iter().filter_map(|dir| dir.parent()) {
        fs::create_dir(hierarchy.join("sb_straycgroup")).unwrap();
    }
    let crowded: Vec<PathBuf> = cgroups(&place, kept.as_str())
        .iter()
        .map(|dir| dir.parent().unwrap().join("sb_strayprocess"))
        .collect();
    // Not our child: who waits for it is not what this is about.
    let spawned = Command::new("bash").args(["-c", "sleep 4321 >/dev/null 2>&1 & echo $!"]).output().unwrap();
    let stray = String::from_utf8(spawned.stdout).unwrap().trim().to_owned();
    for dir in &crowded {
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

/// A new v1 cpuset takes nobody before it has processors and memory.
fn inherit_cpuset(dir: &Path) {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(text) = fs::read_to_string(dir.parent().unwrap().join(file)) {
            fs::write(dir.join(file), text.trim()).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_dead_clients_end_also_in_sandboxes_that_were_paused() {
    let place = Place::fresh();
    let _sweeper = Sweeper::new(&place, &RigOptions::default());
    let daemon = std::sync::Arc::new(Daemon::start(Path::new(VICTIM), &place, 0, 64).unwrap());
    daemon.ready().await.unwrap();
    let id = daemon.ask("create").await.unwrap();
    let (client, request) = (std::sync::Arc::clone(&daemon), format!("exec {id} touch started; sleep 4322"));
    let waiting = tokio::spawn(async move { client.call(&request).await });
    while daemon.ask(&format!("exec {id} ls")).await.unwrap() != "0 started\n" {}
    daemon.ask(&format!("pause {id}")).await.unwrap();
    daemon.kill().await.unwrap();
    assert_eq!(waiting.await.unwrap(), e2e::Answer::Lost);

    let daemon = Daemon::start(Path::new(VICTIM), &place, 0, 64).unwrap();
    assert_eq!(daemon.ready().await.unwrap().paused, 1);
    daemon.ask(&format!("resume {id}")).await.unwrap();
    let looks = std::time::Instant::now();
    while sleeps_on_host(&place, &id) {
        assert!(looks.elapsed().as_secs() < 5, "a resume alone does not end the commands of dead clients");
        tokio::task::yield_now().await;
    }
    daemon.ask(&format!("destroy {id}")).await.unwrap();
    daemon.stop().await.unwrap();
}

/// Whether the command runs, seen from outside so that no request of ours wakes anything.
fn sleeps_on_host(place: &Place, id: &str) -> bool {
    let procs = cgroups(place, id)
        .iter()
        .filter_map(|dir| fs::read_to_string(dir.join("cgroup.procs")).ok())
        .collect::<String>();
    procs
        .lines()
        .any(|pid| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default() == b"sleep\x004322\x00")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_whose_disk_is_missing_starts_on_an_empty_one() {
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let id = rig.create().await.unwrap();
    mark(&rig, &id).await;
    let disk = rig.data.join("sandboxes").join(id.as_str()).join("disk.img");
    let halted = rig.halt().await;
    reboot(&halted).await;
    fs::remove_file(&disk).unwrap();
    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 1, ..Recovered::default() });
    assert_eq!(rig.output(&id, "ls; pwd").await.unwrap(), "/workspace\n");
    rig.clear().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_disk_is_mended_and_one_beyond_that_refuses_without_a_trace() {
    use std::os::unix::fs::FileExt;
    let rig = Rig::new(RigOptions::default()).await.unwrap();
    let (damaged, ruined) = (rig.create().await.unwrap(), rig.create().await.unwrap());
    for id in [&damaged, &ruined] {
        rig.output(id, "echo kept > marker; sync").await.unwrap();
    }
    let disk = |id: &SandboxId| rig.data.join("sandboxes").join(id.as_str()).join("disk.img");
    let (damaged_disk, ruined_disk) = (disk(&damaged), disk(&ruined));
    let halted = rig.halt().await;
    reboot(&halted).await;
    // The group descriptors of the first block: the kernel refuses such a file system, and e2fsck has copies.
    let file = fs::File::options().write(true).open(&damaged_disk).unwrap();
    file.write_all_at(&[0xff; 4096], 4096).unwrap();
    let file = fs::File::options().write(true).open(&ruined_disk).unwrap();
    file.set_len(0).unwrap();
    file.set_len(5120 << 20).unwrap();

    let rig = halted.start().await.unwrap();
    assert_eq!(rig.recovered, Recovered { stopped: 2, ..Recovered::default() });
    assert_eq!(rig.output(&damaged, "cat marker").await.unwrap(), "kept\n");
    let error = rig.engine.sandbox("test", &ruined).resume().await.unwrap_err();
    assert!(matches!(error, engine::EngineError::Backend(_)), "{error:?}");
    let Err(error) = rig.engine.sandbox("test", &ruined).execute(command("true")).await else {
        panic!("it runs on nothing")
    };
    assert!(matches!(error, engine::EngineError::Backend(_)), "{error:?}");
    // It stays paused, and gives back what it was to have.
    assert_eq!(state(&rig, &ruined).await, SandboxState::Paused);
    assert_eq!(rig.engine.capacity().1.cpu, 2);
    assert_on_host(&rig, &[&damaged], &[&ruined]).await;
    rig.engine.sandbox("test", &ruined).terminate("request").await.unwrap();
    assert_on_host(&rig, &[&damaged], &[]).await;
    rig.clear().await.unwrap();
}
