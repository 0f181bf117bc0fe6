//! The checks that `tests/cgroup_v2.rs` runs in its virtual machine: sandboxes on a host with cgroup v2 only.
//!
//! Prints a line for each check, `ok NAME`, `FAIL NAME: REASON` or `skip NAME: REASON`, and finally `end ok` or `end failed`. A
//! failed check does not clean up; the machine is discarded. After the end of the first boot it cuts the power while a sandbox is
//! hibernated; the second boot wakes it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use api::{EndReason, Resources, SandboxConfig, SandboxId};
use e2e::{Daemon, Expected, Rig, RigLayout, RigOptions, command, config, wait_for_resources};
use tokio::process::Command;

const ROOT: &str = "/sys/fs/cgroup";
const RUNSC: &str = "/usr/bin/runsc";
const LXCFS: &str = "/usr/bin/lxcfs";
/// What the second boot has to find.
const STORED: &str = "/hibernated";
/// A process that counts, with its state in memory only.
const COUNTER: &str =
    "while true; do n=$((n + 1)); echo $$ $n > count.new; mv count.new count; sleep 0.1; done";
/// The machine is emulated without hardware acceleration and therefore slow.
const TIMEOUT: Duration = Duration::from_secs(90);

#[tokio::main]
async fn main() {
    let mut failed = Vec::new();
    let mut report = |name: &'static str, begin: Instant, outcome: Result<()>| match outcome {
        Ok(()) => println!("ok {name} ({} ms)", begin.elapsed().as_millis()),
        Err(error) => {
            println!("FAIL {name}: {error:#}");
            failed.push(name);
        }
    };
    macro_rules! check {
        ($($name:ident),*) => { $(
            let begin = Instant::now();
            report(stringify!($name), begin, $name().await);
        )* };
    }
    if let Ok(stored) = std::fs::read_to_string(STORED) {
        report("wake_after_a_power_failure", Instant::now(), wake(&stored).await);
        println!("end {}", if failed.is_empty() { "ok" } else { "failed" });
        return;
    }
    check!(doctor, one_off, limits, memory, processes, oom_scores, freezer, recovery);
    // These two may not be installed on the host.
    if Path::new(RUNSC).exists() {
        check!(gvisor);
    } else {
        println!("skip gvisor: {RUNSC} is not installed");
    }
    if Path::new(LXCFS).exists() {
        check!(lxcfs);
    } else {
        println!("skip lxcfs: {LXCFS} is not installed");
    }
    check!(no_cgroups_left);
    println!("end {}", if failed.is_empty() { "ok" } else { "failed" });
    if Path::new(RUNSC).exists()
        && let Err(error) = hibernate_and_cut_the_power().await
    {
        println!("FAIL hibernate_and_cut_the_power: {error:#}");
    }
}

fn beside(name: &str) -> Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name(name))
}

/// Runs the program built by `./dev build`, with the images of the tests.
async fn sandboxd(arguments: &[&str]) -> Result<(Option<i32>, String)> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bin/sandboxd").canonicalize()?;
    // The machine has neither nft nor its kernel modules.
    let config = "/tmp/sandboxd.toml";
    tokio::fs::write(config, "[egress]\nnetwork = \"none\"\n").await?;
    // starts: sandboxd
    let mut command = Command::new(program);
    let output =
        command.args(arguments).env("SANDBOXD_CONFIG", config).env("SANDBOXD_DATA_DIR", "/images").output();
    let Ok(output) = tokio::time::timeout(2 * TIMEOUT, output).await else {
        bail!("it did not end in time; running threads:{}", thread_dump()?);
    };
    let output = output?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !stderr.trim().is_empty() {
        println!("   {}", stderr.trim());
    }
    Ok((output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// The threads of all processes with their system calls and kernel stacks.
fn thread_dump() -> Result<String> {
    let mut text = String::new();
    for process in std::fs::read_dir("/proc")? {
        let Ok(threads) = std::fs::read_dir(process?.path().join("task")) else { continue };
        for thread in threads {
            let thread = thread?.path();
            let read = |file: &str| std::fs::read_to_string(thread.join(file)).unwrap_or_default();
            let stack = read("stack");
            // Idle kernel threads are not of interest.
            if read("cmdline").is_empty() && !read("stat").contains(") D ") {
                continue;
            }
            write!(
                text,
                "\n   {} {} {}",
                thread.display(),
                read("cmdline").replace('\0', " "),
                read("syscall")
            )?;
            stack.lines().take(8).try_for_each(|line| write!(text, "      {line};"))?;
        }
    }
    Ok(text)
}

async fn doctor() -> Result<()> {
    let (code, text) = sandboxd(&["doctor"]).await?;
    ensure!(code == Some(0), "it ended with {code:?}: {text}");
    let line = text
        .lines()
        .find(|line| line.contains(" cgroups "))
        .context("its output has no line about cgroups")?;
    ensure!(line.starts_with("ok ") && line.ends_with(" v2"), "the line is {line:?}");
    Ok(())
}

async fn one_off() -> Result<()> {
    let script = "id -u; nproc; cd /sys/fs/cgroup; cat memory.max memory.swap.max pids.max cpu.max; \
        mkdir x 2>/dev/null || echo closed; echo max 2>/dev/null >memory.max || echo closed; exit 7";
    // The machine's disk has space only for the smallest size.
    let size = ["--cpu", "2", "--memory", "4096", "--disk", "5120"];
    let (code, text) = sandboxd(&[&["run", "ubuntu:24.04"], &size[..], &["--", script]].concat()).await?;
    let seen: Vec<&str> = text.lines().collect();
    let memory = (4096_u64 << 20).to_string();
    ensure!(
        seen == ["0", "2", &memory, "0", "1024", "40000 20000", "closed", "closed"],
        "the command printed {seen:?}"
    );
    ensure!(code == Some(7), "the exit code is {code:?}");
    Ok(())
}

/// Runs one check on a new rig and verifies that nothing is left.
async fn with_rig(options: RigOptions, check: impl AsyncFnOnce(&Rig) -> Result<()>) -> Result<()> {
    let rig = Rig::new(options).await?;
    check(&rig).await?;
    for record in rig.store.living().await? {
        rig.engine.sandbox("test", &record.id).terminate("request").await?;
    }
    // Empties the pool too.
    let halted = rig.halt().await;
    assert_nothing_left(&halted.layout).await?;
    halted.layout.clear(&halted.options).await
}

/// Checks that no cgroup, process, mount or loop device of a sandbox is left.
async fn assert_nothing_left(layout: &RigLayout) -> Result<()> {
    let strays = wait_for_resources(layout, &Expected::default()).await;
    ensure!(strays.is_empty(), "left over: {}", strays.join("; "));
    Ok(())
}

async fn small(rig: &Rig, cpu: u32, memory_mb: u32) -> Result<SandboxId> {
    let config = SandboxConfig { resources: Resources { cpu, memory_mb, disk_mb: 64 }, ..config() };
    Ok(rig.engine.create("test", config, rig.template.clone(), None).await?.record.id.clone())
}

fn read(rig: &Rig, id: &SandboxId, file: &str) -> Result<String> {
    let path = Path::new(ROOT).join(&rig.name).join(id.as_str()).join(file);
    Ok(std::fs::read_to_string(&path).with_context(|| path.display().to_string())?.trim().to_owned())
}

/// One number of a file with lines `NAME NUMBER`.
fn figure(rig: &Rig, id: &SandboxId, file: &str, name: &str) -> Result<u64> {
    let text = read(rig, id, file)?;
    let found = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    found.with_context(|| format!("{file} has no {name}: {text}"))
}

async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let begin = Instant::now();
    while !condition().await? {
        ensure!(begin.elapsed() < TIMEOUT, "timeout of {TIMEOUT:?}: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A sandbox claimed from the pool gets the same limits as one created with them.
async fn limits() -> Result<()> {
    let files = ["memory.max", "memory.swap.max", "cpu.max", "cpu.weight", "pids.max"];
    let seen =
        |rig: &Rig, id: &SandboxId| files.iter().map(|file| read(rig, id, file)).collect::<Result<Vec<_>>>();
    let mut created = Vec::new();
    with_rig(RigOptions::default(), async |rig| {
        let id = small(rig, 1, 512).await?;
        created = seen(rig, &id)?;
        ensure!(
            created[..3] == ["536870912", "0", "19000 20000"] && created[4] == "512",
            "created with {created:?}"
        );
        Ok(())
    })
    .await?;
    with_rig(RigOptions { pool: 1, ..RigOptions::default() }, async |rig| {
        rig.wait_for_full_pool().await;
        let ready = rig.driver.list().await?;
        let resources = Resources { cpu: 1, memory_mb: 512, ..config().resources };
        let config = SandboxConfig { resources, ..config() };
        let id = rig.engine.create("test", config, rig.template.clone(), None).await?.record.id.clone();
        ensure!(ready.contains(&id), "{id} did not come from the pool, which held {ready:?}");
        let claimed = seen(rig, &id)?;
        ensure!(
            claimed == created,
            "claimed from the pool it has {claimed:?}, created it would have {created:?}"
        );
        let shown = rig.output(&id, "nproc; cat /sys/fs/cgroup/cpu.max").await?;
        ensure!(shown == "1\n20000 20000\n", "its processors and their quota look like {shown:?}");
        Ok(())
    })
    .await
}

async fn memory() -> Result<()> {
    with_rig(RigOptions::default(), async |rig| {
        let id = small(rig, 2, 128).await?;
        let bystander = rig.output(&id, "sleep 1000 >/dev/null 2>&1 & echo $!").await?;
        let result = rig.run(&id, "exec perl -e '$x = q(x) x (1 << 28); sleep 100'").await?;
        ensure!(result.signal.as_deref() == Some("SIGKILL"), "the hog ended with {result:?}");
        ensure!(figure(rig, &id, "memory.events", "oom_kill ")? >= 1, "its cgroup counted no OOM kill");
        let message = result.message.as_deref().unwrap_or_default();
        let is_named = result.reason == Some(EndReason::Oom) && message.contains("its limit of 128 MB");
        ensure!(is_named, "the result does not name the limit: {result:?}");
        let comm = rig.output(&id, &format!("cat /proc/{}/comm", bystander.trim())).await?;
        ensure!(comm == "sleep\n", "the bystander is {comm:?}");
        Ok(())
    })
    .await
}

async fn processes() -> Result<()> {
    with_rig(RigOptions::default(), async |rig| {
        let id = small(rig, 2, 512).await?;
        let fill =
            "exec perl -e 'for (1..600) { my $pid = fork; last if !defined $pid; last if !$pid } sleep 100'";
        let filling = rig.engine.sandbox("test", &id).execute(command(fill)).await?;
        wait_until("the process table is full", async || Ok(figure(rig, &id, "pids.current", "")? == 512))
            .await?;
        wait_until("a fork was refused", async || Ok(figure(rig, &id, "pids.events", "max ")? > 0)).await?;
        // The client disconnects: the command ends with all its processes.
        drop(filling);
        wait_until("the process table is empty", async || Ok(rig.host_pids(&id)?.len() == 1)).await?;
        ensure!(rig.output(&id, "echo works").await? == "works\n", "commands do not run any more");
        Ok(())
    })
    .await
}

/// A sandbox does not inherit the daemon's low score for the out-of-memory killer, and cannot get it back.
async fn oom_scores() -> Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "-999").context("lowering the own score")?;
    let gvisor = Path::new(RUNSC).exists().then(under_gvisor);
    for options in [Some(RigOptions::default()), gvisor].into_iter().flatten() {
        with_rig(options, async |rig| {
            let id = small(rig, 1, 512).await?;
            let lower = "sleep 1000 >/dev/null 2>&1 & for pid in self 1 $!; do echo -500 >/proc/$pid/oom_score_adj; done 2>/dev/null; true";
            rig.output(&id, lower).await?;
            let processes = rig.host_pids(&id)?;
            ensure!(processes.len() >= 2, "its processes are {processes:?}");
            for pid in processes {
                let score = std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj"))?;
                ensure!(score.trim().parse::<i32>()? >= 0, "process {pid} has the score {score}");
            }
            Ok(())
        })
        .await?;
    }
    Ok(std::fs::write("/proc/self/oom_score_adj", "0")?)
}

async fn freezer() -> Result<()> {
    with_rig(RigOptions::default(), async |rig| {
        let id = small(rig, 2, 256).await?;
        let busy = rig.output(&id, "(while :; do :; done) >/dev/null 2>&1 & echo $!").await?;
        rig.engine.sandbox("test", &id).pause().await?;
        ensure!(figure(rig, &id, "cgroup.events", "frozen ")? == 1, "it is not frozen");
        let used = figure(rig, &id, "cpu.stat", "usage_usec ")?;
        // A measurement: during this time a busy loop must get no CPU time.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let more = figure(rig, &id, "cpu.stat", "usage_usec ")? - used;
        ensure!(more < 20_000, "paused, it used {more} us of 300 ms");
        rig.engine.sandbox("test", &id).resume().await?;
        ensure!(figure(rig, &id, "cgroup.events", "frozen ")? == 0, "it is still frozen");
        wait_until("it continues to run", async || {
            Ok(figure(rig, &id, "cpu.stat", "usage_usec ")? > used + 100_000)
        })
        .await?;
        rig.output(&id, &format!("kill -0 {}", busy.trim())).await?;
        // A paused sandbox can be terminated.
        rig.engine.sandbox("test", &id).pause().await?;
        rig.engine.sandbox("test", &id).terminate("request").await?;
        assert_nothing_left(rig.layout()).await
    })
    .await
}

/// After SIGKILL of the daemon, the next one finds running sandboxes running and paused sandboxes paused.
async fn recovery() -> Result<()> {
    let layout = RigLayout::unused();
    let victim = beside("victim")?;
    let daemon = Daemon::start(&victim, &layout, 0, 16)?;
    daemon.ready().await?;
    let mut marked = Vec::new();
    for paused in [false, true] {
        let id = daemon.expect_ok("create").await?;
        let pid =
            daemon.expect_ok(&format!("exec {id} sleep 4321 </dev/null >/dev/null 2>&1 & echo $!")).await?;
        if paused {
            daemon.expect_ok(&format!("pause {id}")).await?;
        }
        marked.push((id, pid.trim_start_matches("0 ").trim().to_owned()));
    }
    daemon.kill().await?;
    let daemon = Daemon::start(&victim, &layout, 0, 16)?;
    let found = daemon.ready().await?;
    ensure!(
        (found.running, found.paused, found.stopped, found.orphans) == (1, 1, 0, 0),
        "recovery found {found:?}"
    );
    for (id, pid) in &marked {
        let inside = daemon.expect_ok(&format!("exec {id} kill -0 {pid} && echo alive")).await?;
        ensure!(inside == "0 alive\n", "{id} lost its process: {inside:?}");
        daemon.expect_ok(&format!("destroy {id}")).await?;
    }
    let expected = Expected { daemon: daemon.pid(), ..Expected::default() };
    let strays = wait_for_resources(&layout, &expected).await;
    ensure!(strays.is_empty(), "left over: {}", strays.join("; "));
    daemon.stop().await?;
    layout.clear(&RigOptions::default()).await
}

/// For gVisor, the driver creates the cgroups itself.
async fn gvisor() -> Result<()> {
    with_rig(under_gvisor(), async |rig| {
        let id = small(rig, 1, 512).await?;
        ensure!(rig.output(&id, "echo works").await? == "works\n", "commands do not run");
        let limits =
            ["memory.max", "memory.swap.max", "cpu.max", "pids.max"].map(|file| read(rig, &id, file));
        let limits = limits.into_iter().collect::<Result<Vec<_>>>()?;
        ensure!(limits == ["536870912", "0", "19000 20000", "512"], "its limits are {limits:?}");
        rig.engine.sandbox("test", &id).pause().await?;
        ensure!(figure(rig, &id, "cgroup.events", "frozen ")? == 1, "it is not frozen");
        rig.engine.sandbox("test", &id).resume().await?;
        ensure!(rig.output(&id, "echo back").await? == "back\n", "commands do not run after the pause");
        Ok(())
    })
    .await
}

fn under_gvisor() -> RigOptions {
    RigOptions { isolation: api::Isolation::Gvisor, ..RigOptions::default() }
}

/// The process that counts, and how far it is.
async fn count(rig: &Rig, id: &SandboxId) -> Result<(u32, u64)> {
    let text = rig.output(id, "cat count").await?;
    let (pid, count) = text.trim().split_once(' ').context("nothing counts")?;
    Ok((pid.parse()?, count.parse()?))
}

/// Ends the machine without a shutdown, right after the hibernation was acknowledged. What was not synced is lost.
async fn hibernate_and_cut_the_power() -> Result<()> {
    let rig = Rig::new(under_gvisor()).await?;
    let id = small(&rig, 1, 512).await?;
    rig.output(&id, &format!("setsid bash -c '{COUNTER}' > /dev/null 2>&1 < /dev/null &")).await?;
    wait_until("it counts", async || Ok(count(&rig, &id).await.is_ok())).await?;
    let (pid, count) = count(&rig, &id).await?;
    let mut file = std::fs::File::create(STORED)?;
    file.write_all(format!("{} {id} {pid} {count}", rig.name).as_bytes())?;
    file.sync_all()?;
    std::fs::File::open("/")?.sync_all()?;
    rig.engine.sandbox("test", &id).pause_with(engine::Processes::Stored).await?;
    std::fs::write("/proc/sysrq-trigger", "o")?;
    tokio::time::sleep(TIMEOUT).await;
    bail!("the machine goes on")
}

async fn wake(stored: &str) -> Result<()> {
    let [name, id, pid, before] = stored.split(' ').collect::<Vec<_>>()[..] else {
        bail!("what was stored is {stored:?}");
    };
    let (id, before): (SandboxId, u64) = (id.parse()?, before.parse()?);
    let rig = Rig::reopen(name.to_owned(), under_gvisor()).await?;
    ensure!(rig.recovered.hibernated == 1, "recovery found {:?}", rig.recovered);
    // Read while it does not run, the file shows at least the last count before the hibernation.
    let (process, after) = count(&rig, &id).await?;
    ensure!(
        process.to_string() == pid && after >= before,
        "{process} counted to {after}, not {pid} from {before}"
    );
    let goes_on = async || Ok(count(&rig, &id).await?.1 > after);
    wait_until("it counts on", goes_on).await?;
    let (process, _) = count(&rig, &id).await?;
    ensure!(process.to_string() == pid, "another process counts: {process} instead of {pid}");
    rig.clear().await
}

/// Sandboxes see their own limits in /proc, also those whose limits were changed later.
async fn lxcfs() -> Result<()> {
    let dir = PathBuf::from("/run/own-figures");
    std::fs::create_dir(&dir)?;
    // Ends with the machine.
    let _lxcfs =
        Command::new(LXCFS).arg("-f").arg(&dir).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    wait_until("lxcfs answers", async || {
        Ok(std::fs::read(dir.join("proc/meminfo")).is_ok_and(|text| !text.is_empty()))
    })
    .await?;
    with_rig(RigOptions { lxcfs: Some(dir), pool: 1, ..RigOptions::default() }, async |rig| {
        rig.wait_for_full_pool().await;
        let resources = Resources { cpu: 1, memory_mb: 512, ..config().resources };
        let config = SandboxConfig { resources, ..config() };
        let claimed = rig.engine.create("test", config, rig.template.clone(), None).await?.record.id.clone();
        for (id, size) in [(claimed, 512), (small(rig, 1, 256).await?, 256)] {
            let total = rig.output(&id, "awk '/^MemTotal:/ { print $2 }' /proc/meminfo").await?;
            ensure!(total.trim() == (size * 1024).to_string(), "with {size} MB it sees {total}");
            let cpus = rig.output(&id, "grep -c ^processor /proc/cpuinfo").await?;
            ensure!(cpus.trim() == "1", "with 1 processor it sees {cpus}");
        }
        Ok(())
    })
    .await
}

/// No cgroup is left after all checks, not even an empty one.
async fn no_cgroups_left() -> Result<()> {
    let entries = std::fs::read_dir(ROOT)?.flatten().filter(|entry| entry.path().is_dir());
    let left: BTreeSet<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    if left.is_empty() { Ok(()) } else { bail!("{left:?}") }
}
