//! cgroup v2: one hierarchy, one directory per sandbox.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use driver::{Limits, MemoryKills};

use super::{CPU_PERIOD_US, SharedLimits, as_far_as_possible, cpu_quota_us, shares};

/// Bounds of the shares of cgroup v1.
const MIN_SHARES: u64 = 2;
const MAX_SHARES: u64 = 262_144;

/// The controllers a sandbox needs.
const CONTROLLERS: [&str; 4] = ["cpu", "cpuset", "memory", "pids"];

/// Requests a freeze; returns whether it is complete.
pub fn freeze(dir: &Path) -> io::Result<bool> {
    fs::write(dir.join("cgroup.freeze"), "1")?;
    is_frozen(dir)
}

pub fn is_frozen(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_to_string(dir.join("cgroup.events"))?.lines().any(|line| line == "frozen 1"))
}

/// Whether a freeze was requested.
pub fn is_freezing(dir: &Path) -> io::Result<bool> {
    Ok(fs::read_to_string(dir.join("cgroup.freeze"))?.trim() == "1")
}

pub fn thaw(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.freeze"), "0")
}

/// Kills the whole subtree at once, frozen or not, including concurrent forks.
pub fn kill(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.kill"), "1")
}

/// Writes the limits of memory, processor time and processors.
pub fn limit(dir: &Path, limits: Limits, cpus: &str) -> io::Result<()> {
    fs::write(dir.join("cpu.max"), format!("{} {CPU_PERIOD_US}", cpu_quota_us(limits.cpu)))?;
    fs::write(dir.join("cpu.weight"), weight(limits.cpu).to_string())?;
    fs::write(dir.join("cpuset.cpus"), cpus)?;
    fs::write(dir.join("memory.max"), (u64::from(limits.memory_mb) << 20).to_string())?;
    limit_swap(dir, "0")
}

fn limit_swap(dir: &Path, bytes: &str) -> io::Result<()> {
    match fs::write(dir.join("memory.swap.max"), bytes) {
        // A kernel without swap accounting has no limit for it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

/// Moves memory to swap. A sandbox may use no swap while it runs: what is there stays until it is used again.
pub fn page_out(dir: &Path, bytes: u64) -> io::Result<()> {
    limit_swap(dir, "max")?;
    let moved = match fs::write(dir.join("memory.reclaim"), bytes.to_string()) {
        // Kernels before 5.19.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        moved => as_far_as_possible(moved),
    };
    limit_swap(dir, "0").and(moved)
}

/// Creates the sandbox's directory and enables the controllers in its ancestors.
pub fn create(root: &Path, parent: &str, name: &str, pids_max: u32) -> io::Result<()> {
    let mut dir = create_parent(root, parent)?;
    enable(&dir)?;
    dir.push(name);
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("pids.max"), pids_max.to_string())
}

/// Sets the limits of the parent of all sandboxes.
pub fn limit_parent(root: &Path, parent: &str, limits: SharedLimits) -> io::Result<()> {
    let dir = create_parent(root, parent)?;
    fs::write(dir.join("memory.max"), limits.memory_bytes.to_string())?;
    fs::write(dir.join("pids.max"), limits.tasks.to_string())
}

/// What the connections of a cgroup hold.
pub fn connection_bytes(dir: &Path) -> io::Result<u64> {
    let statistics = fs::read_to_string(dir.join("memory.stat"))?;
    let held = statistics.lines().find_map(|line| line.strip_prefix("sock ")?.parse().ok());
    Ok(held.unwrap_or(0))
}

/// The kills are those of processes of the cgroup, whichever limit they exceeded. `oom` counts only the cgroup's own limit.
pub fn memory_kills(dir: &Path) -> Option<MemoryKills> {
    let events = fs::read_to_string(dir.join("memory.events")).ok()?;
    let count = |event: &str| {
        let mut counts = events.lines().filter_map(|line| line.split_once(' '));
        counts.find(|(name, _)| *name == event)?.1.parse::<u64>().ok()
    };
    Some(MemoryKills { count: count("oom_kill")?, has_reached_limit: count("oom")? > 0 })
}

fn create_parent(root: &Path, parent: &str) -> io::Result<PathBuf> {
    let mut dir = root.to_owned();
    for part in Path::new(parent).components() {
        enable(&dir)?;
        dir.push(part);
        fs::create_dir_all(&dir)?;
    }
    Ok(dir)
}

fn enable(dir: &Path) -> io::Result<()> {
    let words: Vec<String> = CONTROLLERS.iter().map(|controller| format!("+{controller}")).collect();
    let enabled = fs::write(dir.join("cgroup.subtree_control"), words.join(" "));
    // Needed only for disk rate limits, whose write fails without it.
    let _ = fs::write(dir.join("cgroup.subtree_control"), "+io");
    enabled
}

/// Converts shares (2 to 262,144) to a weight (1 to 10,000) like the runtimes, so that a sandbox of the warm pool
/// gets the same weight as one that the runtime created with these limits.
fn weight(cpu: u32) -> u64 {
    1 + (shares(cpu).clamp(MIN_SHARES, MAX_SHARES) - MIN_SHARES) * 9_999 / (MAX_SHARES - MIN_SHARES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kills_are_told_from_those_of_other_limits() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(memory_kills(dir.path()), None);
        for (oom, has_reached_limit) in [(0, false), (2, true)] {
            let events = format!("low 0\nhigh 0\nmax 7\noom {oom}\noom_kill 3\noom_group_kill 0\n");
            fs::write(dir.path().join("memory.events"), events).unwrap();
            assert_eq!(memory_kills(dir.path()), Some(MemoryKills { count: 3, has_reached_limit }));
        }
    }
}
