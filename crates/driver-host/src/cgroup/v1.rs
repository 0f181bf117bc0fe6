//! cgroup v1: one hierarchy per controller. Hybrid hosts use it for all needed controllers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use driver::{Limits, MemoryKills};

use super::{
    CONNECTION_BYTES, CPU_PERIOD_US, CgroupEntry, ROOT, SharedLimits, as_far_as_possible, cpu_quota_us,
    devices, is_gone, shares,
};

/// The controllers that limit sandboxes. Each sandbox has a cgroup in these hierarchies.
pub const CONTROLLERS: [&str; 5] = ["freezer", "memory", "cpu", "cpuset", "pids"];
/// Where each sandbox has a cgroup, for its metrics and its devices, if the kernel has the hierarchy.
const OPTIONAL: [&str; 2] = ["cpuacct", DEVICES];
/// The hierarchy that limits devices.
const DEVICES: &str = "devices";
/// Where sandboxes are in the cgroup of the driver, if the kernel has the hierarchy: in blkio those without limits of their own, and
/// in systemd all, so that they do not count as a part of the service that started the daemon. A cgroup takes 0.1 ms and 11 KB.
const MAYBE_SHARED: [&str; 2] = ["blkio", "systemd"];
/// The hierarchies that are visible inside: those in which programs look for their limits and their use.
const VISIBLE: [&str; 5] = ["memory", "cpu", "cpuacct", "cpuset", "pids"];
/// The file of the quota of processor time.
const QUOTA: &str = "cpu.cfs_quota_us";
/// The files of a cpuset.
const PROCESSORS: &str = "cpuset.cpus";
const MEMORY_NODES: &str = "cpuset.mems";
/// How often a kill checks whether its freeze is complete, every 0.1 ms.
const FREEZE_CHECKS: u32 = 200;
/// The kernel gives up when it cannot get several pages at once, which may be this far below the limit.
const LIMIT_SLACK: u64 = 2 << 20;

/// The directories of the cgroups that a sandbox's processes are in. `dir` finds one by controller and name; without a name it is
/// the driver's.
fn joined(dir: impl Fn(&str, &str) -> PathBuf, name: &str) -> Vec<(&'static str, PathBuf)> {
    let shared = existing(&MAYBE_SHARED).map(|controller| {
        let own = dir(controller, name);
        (controller, if own.exists() { own } else { dir(controller, "") })
    });
    own_controllers().map(|controller| (controller, dir(controller, name))).chain(shared).collect()
}

fn own_controllers() -> impl Iterator<Item = &'static str> {
    CONTROLLERS.into_iter().chain(existing(&OPTIONAL))
}

/// Those of the hierarchies that the kernel has.
fn existing(controllers: &'static [&'static str]) -> impl Iterator<Item = &'static str> {
    // A directory alone could be one that somebody made in the file system around the hierarchies.
    controllers.iter().copied().filter(|name| Path::new(ROOT).join(name).join("cgroup.procs").exists())
}

/// The files into which a process writes its pid to join the cgroups of a sandbox.
pub fn entry_files(dir: impl Fn(&str, &str) -> PathBuf, name: &str) -> Vec<PathBuf> {
    let joined = joined(dir, name).into_iter().filter(|(controller, _)| *controller != DEVICES);
    joined.map(|(_, dir)| dir.join("cgroup.procs")).collect()
}

/// Requests a freeze; returns whether it is complete.
pub fn freeze(dir: &Path) -> io::Result<bool> {
    fs::write(dir.join("freezer.state"), "FROZEN")?;
    is_frozen(dir)
}

pub fn is_frozen(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_to_string(dir.join("freezer.state"))?.trim() == "FROZEN")
}

/// Whether a freeze was requested, complete or not: a daemon that dies during a freeze leaves an incomplete one.
pub fn is_freezing(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_to_string(dir.join("freezer.state"))?.trim() != "THAWED")
}

pub fn thaw(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("freezer.state"), "THAWED")
}

/// Sends SIGKILL to all processes. They are frozen first: frozen processes cannot end, so no pid is reused between
/// the list and the signal. If a process cannot be frozen, the caller's next attempt finds what this one missed.
pub fn kill(dir: &Path) -> io::Result<()> {
    for _ in 0..FREEZE_CHECKS {
        if freeze(dir)? {
            break;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let list = fs::read_to_string(dir.join("cgroup.procs"));
    let signalled = list.map(|list| list.lines().filter_map(|line| line.parse().ok()).for_each(kill_process));
    thaw(dir)?;
    signalled
}

fn kill_process(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // Fails if the process has ended.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// Writes the limits of memory, processor time and processors.
pub fn limit(dir: impl Fn(&str) -> PathBuf, limits: Limits, cpus: &str) -> io::Result<()> {
    fs::write(dir("cpu").join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
    fs::write(dir("cpu").join(QUOTA), cpu_quota_us(limits.cpu).to_string())?;
    fs::write(dir("cpu").join("cpu.shares"), shares(limits.cpu).to_string())?;
    fs::write(dir("cpuset").join(PROCESSORS), cpus)?;
    limit_memory(&dir("memory"), u64::from(limits.memory_mb) << 20)
}

/// Creates the parent of all sandboxes in the hierarchies that limit it, and sets its limits.
pub fn limit_parent(dir: impl Fn(&str) -> PathBuf, limits: SharedLimits) -> io::Result<()> {
    let (memory, pids) = (dir("memory"), dir("pids"));
    fs::create_dir_all(&memory)?;
    fs::create_dir_all(&pids)?;
    limit_memory(&memory, limits.memory_bytes)?;
    limit_tcp(&memory, limits.tcp_bytes)?;
    fs::write(pids.join("pids.max"), limits.tasks.to_string())
}

/// Limits the memory of the connections of one sandbox.
pub fn limit_connections(memory: &Path) -> io::Result<()> {
    limit_tcp(memory, CONNECTION_BYTES)
}

/// Limits the memory of network connections, which the kernel does not even count without a limit.
fn limit_tcp(memory: &Path, bytes: u64) -> io::Result<()> {
    match fs::write(memory.join("memory.kmem.tcp.limit_in_bytes"), bytes.to_string()) {
        // The kernel was built without it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// What the connections of a cgroup hold.
pub fn connection_bytes(memory: &Path) -> io::Result<u64> {
    match fs::read_to_string(memory.join("memory.kmem.tcp.usage_in_bytes")) {
        Ok(text) => Ok(text.trim().parse().unwrap_or(0)),
        // The kernel was built without it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

/// The count is that of processes of the cgroup, whichever limit they exceeded. This version has no count of the own limit, but knows
/// the most that was ever used.
pub fn memory_kills(dir: &Path) -> Option<MemoryKills> {
    let number = |file: &str| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
    let control = fs::read_to_string(dir.join("memory.oom_control")).ok()?;
    let count = control.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok())?;
    let most_used = number("memory.max_usage_in_bytes")?;
    let has_reached_limit = most_used.saturating_add(LIMIT_SLACK) >= number("memory.limit_in_bytes")?;
    Some(MemoryKills { count, has_reached_limit })
}

/// Memory and memory with swap have the same limit (no swap); the kernel requires that the first is never above the second.
pub fn limit_memory(dir: &Path, bytes: u64) -> io::Result<()> {
    let memory = dir.join("memory.limit_in_bytes");
    let with_swap = dir.join("memory.memsw.limit_in_bytes");
    let current: u64 = fs::read_to_string(&memory)?.trim().parse().unwrap_or(u64::MAX);
    let text = bytes.to_string();
    if !with_swap.exists() {
        return fs::write(memory, text);
    }
    let (first, second) = if bytes > current { (with_swap, memory) } else { (memory, with_swap) };
    fs::write(first, &text)?;
    fs::write(second, &text)
}

/// Moves all memory to swap, which is within the limit of memory with swap.
pub fn page_out(dir: &Path) -> io::Result<()> {
    as_far_as_possible(fs::write(dir.join("memory.force_empty"), "0"))
}

/// The files of the quota in a directory of hierarchies. Many hosts mount both controllers together, at two places.
pub fn quota_files(root: &Path) -> [PathBuf; 2] {
    ["cpu", "cpuacct"].map(|controller| root.join(controller).join(QUOTA))
}

/// The cgroups of a sandbox, for its first process.
pub fn entries(dir: impl Fn(&str, &str) -> PathBuf, name: &str, inside: &Path) -> Vec<CgroupEntry> {
    let entry = |(controller, dir): (&str, PathBuf)| {
        let tasks = Some(dir.join("tasks"));
        let visible = VISIBLE.contains(&controller).then(|| (dir, inside.join(controller)));
        CgroupEntry { tasks, visible }
    };
    joined(dir, name).into_iter().map(entry).collect()
}

/// Creates the sandbox's directories, and the driver's in which they are or which they share. A new cpuset is unusable without
/// processors and memory nodes: the driver's gets those of its parent, and the sandbox's the nodes, as [`limit`] sets its processors.
pub fn create(dir: impl Fn(&str, &str) -> PathBuf, name: &str, pids_max: u32) -> io::Result<()> {
    for controller in own_controllers() {
        fs::create_dir_all(dir(controller, name))?;
    }
    for controller in existing(&MAYBE_SHARED) {
        fs::create_dir_all(dir(controller, ""))?;
    }
    let devices = dir(DEVICES, name);
    if devices.exists() {
        devices::limit_v1(&devices)?;
    }
    inherit(&dir("cpuset", ""), PROCESSORS)?;
    inherit(&dir("cpuset", ""), MEMORY_NODES)?;
    inherit(&dir("cpuset", name), MEMORY_NODES)?;
    limit_connections(&dir("memory", name))?;
    fs::write(dir("pids", name).join("pids.max"), pids_max.to_string())
}

/// Gives a cpuset the processors or memory nodes of its parent, unless it has some.
fn inherit(dir: &Path, file: &str) -> io::Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    match fs::read_to_string(dir.join(file)) {
        Ok(text) if text.trim().is_empty() => {
            fs::write(dir.join(file), fs::read_to_string(parent.join(file))?)
        }
        Ok(_) => Ok(()),
        Err(error) if is_gone(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_told_from_those_of_other_limits_by_the_most_that_was_used() {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| fs::write(dir.path().join(file), text).unwrap();
        let kills = || memory_kills(dir.path());
        assert_eq!(kills(), None);
        write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n");
        write("memory.limit_in_bytes", "536870912\n");
        for (most_used, has_reached_limit) in
            [("536870912\n", true), ("535822336\n", true), ("67051520\n", false)]
        {
            write("memory.max_usage_in_bytes", most_used);
            assert_eq!(kills(), Some(MemoryKills { count: 3, has_reached_limit }), "{most_used}");
        }
        // A kernel that does not count.
        write("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n");
        assert_eq!(kills(), None);
    }
}
