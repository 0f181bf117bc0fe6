//! Memory that an attack takes without being charged: of the host's kernel, and of the daemon with its lxcfs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use e2e::service::Service;

/// A measurement.
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    kernel_mb: i64,
    daemon_mb: i64,
}

/// What an attack took at most.
#[derive(Debug, Clone, Copy, Default)]
pub struct Taken {
    /// Memory of the kernel that is charged to no sandbox of the attacker.
    pub kernel_mb: i64,
    pub daemon_mb: i64,
}

impl Memory {
    /// Also makes the kernel forget the daemon's peak.
    pub fn before(service: &Service) -> Result<Self> {
        for pid in processes(service)? {
            // 5 resets the peak to what is resident now.
            fs::write(format!("/proc/{pid}/clear_refs"), "5")?;
        }
        Ok(Self { kernel_mb: kernel_mb()?, daemon_mb: daemon_peak_mb(service)? })
    }

    /// Raises `taken` to what is used now, apart from what the attacker's sandboxes are charged.
    pub fn update(self, service: &Service, sandboxes: &[String], taken: &mut Taken) -> Result<()> {
        let charged: i64 = sandboxes.iter().map(|id| charged_kernel_mb(service, id)).sum();
        taken.kernel_mb = taken.kernel_mb.max(kernel_mb()? - self.kernel_mb - charged);
        taken.daemon_mb = taken.daemon_mb.max(daemon_peak_mb(service)? - self.daemon_mb);
        Ok(())
    }
}

/// Memory that is neither free nor a cache nor that of processes: of the kernel itself. Other programs of the machine hardly
/// change it.
fn kernel_mb() -> Result<i64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let field = |name| kilobytes(&text, name).with_context(|| format!("no {name} in /proc/meminfo"));
    let others = ["MemFree:", "Buffers:", "Cached:", "AnonPages:", "SReclaimable:"];
    let others = others.into_iter().map(field).sum::<Result<i64>>()?;
    Ok((field("MemTotal:")? - others) / 1024)
}

/// The daemon, and the lxcfs that it has started, if the host runs none.
fn processes(service: &Service) -> Result<Vec<u32>> {
    let daemon = service.pid().context("the daemon does not run")?;
    let lxcfs = fs::read_to_string(service.layout.run.join("lxcfs.pid")).unwrap_or_default();
    Ok([Some(daemon), lxcfs.trim().parse().ok()].into_iter().flatten().collect())
}

fn daemon_peak_mb(service: &Service) -> Result<i64> {
    let peak = |pid| {
        let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(kilobytes(&text, "VmHWM:").context("no VmHWM")? / 1024)
    };
    processes(service)?.into_iter().map(peak).sum()
}

/// The kernel's memory in the cgroup of a sandbox; 0 if that has ended.
fn charged_kernel_mb(service: &Service, id: &str) -> i64 {
    let below = Path::new(&service.layout.name).join(id);
    let v1 = Path::new("/sys/fs/cgroup/memory").join(&below).join("memory.kmem.usage_in_bytes");
    let v2 = Path::new("/sys/fs/cgroup").join(&below).join("memory.stat");
    let bytes = match fs::read_to_string(v1) {
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(_) => {
            let text = fs::read_to_string(v2).unwrap_or_default();
            kilobytes(&text, "kernel ").unwrap_or(0) + kilobytes(&text, "sock ").unwrap_or(0)
        }
    };
    bytes >> 20
}

/// The number after a name at the beginning of a line.
fn kilobytes(text: &str, name: &str) -> Option<i64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
    rest.split_whitespace().next()?.parse().ok()
}
