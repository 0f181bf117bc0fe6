//! cgroup v1: one hierarchy per controller. Hybrid hosts use it for all needed controllers.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use driver::Limits;

use super::{CPU_PERIOD_US, CgroupEntry, ROOT, devices, is_gone, shares};

/// The controllers that limit sandboxes.
pub const CONTROLLERS: [&str; 5] = ["freezer", "memory", "cpu", "cpuset", "pids"];
/// Further hierarchies in which a sandbox has a cgroup if the kernel has them: for its metrics, for rate limits of its disk, for
/// its devices, and so that it does not count as a part of the service that started the daemon.
const OPTIONAL: [&str; 4] = ["cpuacct", "blkio", "devices", "systemd"];
/// The hierarchy that limits devices.
const DEVICES: &str = "devices";
/// How often a kill checks whether its freeze is complete, every 0.1 ms.
const FREEZE_CHECKS: u32 = 200;

/// The files into which a process writes its pid to join the cgroups of a sandbox.
pub fn entry_files(dir: impl Fn(&str) -> PathBuf) -> Vec<PathBuf> {
    let optional =
        OPTIONAL.iter().filter(|controller| **controller != DEVICES).map(|controller| dir(controller));
    let required = CONTROLLERS.iter().map(|controller| dir(controller));
    required.chain(optional.filter(|dir| dir.exists())).map(|dir| dir.join("cgroup.procs")).collect()
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
    let quota = u64::from(limits.cpu) * CPU_PERIOD_US;
    fs::write(dir("cpu").join("cpu.cfs_period_us"), CPU_PERIOD_US.to_string())?;
    fs::write(dir("cpu").join("cpu.cfs_quota_us"), quota.to_string())?;
    fs::write(dir("cpu").join("cpu.shares"), shares(limits.cpu).to_string())?;
    fs::write(dir("cpuset").join("cpuset.cpus"), cpus)?;
    limit_memory(&dir("memory"), u64::from(limits.memory_mb) << 20)
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

/// The cgroups of a sandbox, for its first process.
pub fn entries(dir: impl Fn(&str) -> PathBuf, inside: &Path) -> Vec<CgroupEntry> {
    let own = CONTROLLERS.iter().chain(OPTIONAL.iter().filter(|controller| has_hierarchy(controller)));
    own.map(|controller| {
        let dir = dir(controller);
        CgroupEntry { tasks: Some(dir.join("tasks")), visible: Some((dir, inside.join(controller))) }
    })
    .collect()
}

fn has_hierarchy(controller: &str) -> bool {
    Path::new(ROOT).join(controller).exists()
}

/// Creates the sandbox's directories. A new cpuset is unusable without processors and memory nodes, so it gets those
/// of its parent.
pub fn create(dir: impl Fn(&str) -> PathBuf, pids_max: u32) -> io::Result<()> {
    for controller in CONTROLLERS {
        fs::create_dir_all(dir(controller))?;
    }
    for controller in OPTIONAL {
        if has_hierarchy(controller) {
            fs::create_dir_all(dir(controller))?;
        }
        if controller == "devices" && has_hierarchy(controller) {
            devices::limit_v1(&dir(controller))?;
        }
    }
    let cpuset = dir("cpuset");
    if let Some(parent) = cpuset.parent() {
        inherit_cpuset(parent)?;
    }
    inherit_cpuset(&cpuset)?;
    fs::write(dir("pids").join("pids.max"), pids_max.to_string())
}

fn inherit_cpuset(dir: &Path) -> io::Result<()> {
    let Some(parent) = dir.parent() else { return Ok(()) };
    for file in ["cpuset.cpus", "cpuset.mems"] {
        match fs::read_to_string(dir.join(file)) {
            Ok(text) if text.trim().is_empty() => {
                fs::write(dir.join(file), fs::read_to_string(parent.join(file))?)?;
            }
            Ok(_) => {}
            Err(error) if is_gone(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
