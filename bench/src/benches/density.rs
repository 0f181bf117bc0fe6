//! Many idle sandboxes: the host memory per sandbox, and the daemon's CPU time.
//!
//! The figure is the difference of the host's `MemAvailable`, which includes agents, kernel objects, page tables, buffers of disks
//! and the daemon. Caches are dropped before both readings.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{Rig, RigOptions};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::{Scale, Setup};
use crate::host;
use crate::report::{Figure, OURS, Row};
use crate::traces;
use crate::with_rig::with_rig;

const IDLE: Duration = Duration::from_secs(20);
const CONCURRENT_CREATES: usize = 3;
/// Fields of `/proc/meminfo` that together explain most of the difference.
const PARTS: [&str; 9] =
    ["AnonPages", "Shmem", "Cached", "Buffers", "Slab", "SUnreclaim", "PageTables", "KernelStack", "Percpu"];

pub async fn run(setup: &Setup) -> Result<Vec<Row>> {
    let count = if setup.scale == Scale::Full { 500 } else { 100 };
    with_rig(RigOptions::default(), async |rig: &Rig| {
        // The first sandbox also allocates shared resources.
        let first = rig.create().await?;
        host::settle_memory().await?;
        let before = host::memory_kb()?;
        let created: Vec<_> = futures_util::stream::iter(0..count)
            .map(|_| rig.create())
            .buffer_unordered(CONCURRENT_CREATES)
            .try_collect()
            .await?;
        host::settle_memory().await?;
        let after = host::memory_kb()?;
        let cpu = idle_cpu_percent().await?;
        let agent = traces::pids(rig, &first).into_iter().next().context("a sandbox has no process")?;
        let note = format!(
            "of which, in KB: {}; an agent: {} resident, {} private",
            parts(&before, &after, count),
            host::resident_kb(&agent)?,
            host::private_kb(&agent)?
        );
        let daemon_mb = megabytes(i64::try_from(host::resident_kb("self")?)?);
        let used = difference(&before, &after, "MemAvailable");
        let ours =
            Row::new("density", OURS, Figure::Megabytes(megabytes(used) / as_float(count)), created.len());
        let daemon = Row::new("density", "daemon-memory", Figure::Megabytes(daemon_mb), 1);
        let idle = Row::new("density", "daemon-idle", Figure::CpuPercent(cpu), 1);
        Ok(vec![ours.note(note), daemon.note("resident memory, including the bench"), idle])
    })
    .await
}

/// The CPU time of the idle daemon, in percent of one processor.
async fn idle_cpu_percent() -> Result<f64> {
    let before = host::own_cpu_time()?;
    tokio::time::sleep(IDLE).await;
    let used = host::own_cpu_time()?.saturating_sub(before);
    Ok(used.as_secs_f64() / IDLE.as_secs_f64() * 100.0)
}

fn parts(before: &BTreeMap<String, i64>, after: &BTreeMap<String, i64>, count: i32) -> String {
    let each = PARTS.map(|name| format!("{name} {}", difference(after, before, name) / i64::from(count)));
    each.join(", ")
}

fn difference(after: &BTreeMap<String, i64>, before: &BTreeMap<String, i64>, name: &str) -> i64 {
    after.get(name).copied().unwrap_or_default() - before.get(name).copied().unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "far below what a double holds")]
fn megabytes(kb: i64) -> f64 {
    kb as f64 / 1024.0
}

fn as_float(count: i32) -> f64 {
    f64::from(count)
}
