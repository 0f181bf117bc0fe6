//! Figures about the host and its processes, from `/proc` and `/sys`.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A daemon with many sandboxes has many sockets.
pub fn raise_open_files() -> Result<()> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })
        .context("raising the limit of open files")
}

/// `/proc/meminfo`, in kB.
pub fn memory_kb() -> Result<BTreeMap<String, i64>> {
    let text = fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    Ok(text
        .lines()
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            Some((name.to_owned(), rest.split_whitespace().next()?.parse().ok()?))
        })
        .collect())
}

/// Writes dirty pages back and drops the caches (pages, directory entries, inodes), so that two readings of the memory differ by
/// what is really in use.
pub async fn settle_memory() -> Result<()> {
    tokio::task::spawn_blocking(|| {
        rustix::fs::sync();
        fs::write("/proc/sys/vm/drop_caches", "3").context("dropping the host's caches")
    })
    .await??;
    // The kernel frees memory in grace periods and workers, whose end cannot be waited for.
    tokio::time::sleep(Duration::from_secs(2)).await;
    Ok(())
}

/// Resident memory of a process.
pub fn resident_kb(process: &str) -> Result<u64> {
    let file = format!("/proc/{process}/status");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .with_context(|| format!("{file} has no VmRSS"))?;
    Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
}

/// The private memory of a process.
pub fn private_kb(process: &str) -> Result<u64> {
    let file = format!("/proc/{process}/smaps_rollup");
    let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
    let private = text.lines().filter(|line| line.starts_with("Private_"));
    Ok(private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
}

/// The CPU time of this process.
pub fn own_cpu_time() -> Result<Duration> {
    let mut nanoseconds = 0;
    for task in fs::read_dir("/proc/self/task").context("listing our threads")? {
        // A thread may end meanwhile.
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else { continue };
        nanoseconds += text.split_whitespace().next().unwrap_or_default().parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanoseconds))
}
