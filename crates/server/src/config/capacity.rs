//! `[capacity]`: what all sandboxes together are allocated.

use anyhow::ensure;
use rules::Overcommit;

use super::declare::{ANY_AMOUNT, table};
use super::problems::Problems;

table! {
    /// Capacity for all sandboxes together. A create or resume that exceeds it gets 503, which names the key. A running sandbox
    /// is allocated its vCPUs, memory and disk, a paused one only its disk. The defaults fit a hundred mostly idle sandboxes on
    /// a personal machine: sandboxes share CPU time, and the daemon monitors the memory and disk that are in use.
    pub struct Capacity {
        /// CPUs that sandboxes can be allocated, before overcommit. `0`: those of the host.
        cpu: u64 = 0, "vCPUs";
        /// Memory that sandboxes can be allocated, before overcommit. `0`: that of the host.
        memory_mb: u64 = 0, "MB";
        /// Disk that sandboxes can be allocated, before overcommit. The maximum, and the meaning of `0`, is the free space of
        /// the file system that holds `data_dir`, plus the space that disks of sandboxes occupy, minus the reserve. Images,
        /// records and logs on that file system reduce it.
        disk_mb: u64 = 0, "MB";
        /// Overcommit factor of `cpu`.
        overcommit_cpu: f64 = Overcommit::PERSONAL.cpu, "factor above 0";
        /// Overcommit factor of `memory_mb`. With any factor, all sandboxes together use at most 90 % of the host's memory.
        overcommit_memory: f64 = Overcommit::PERSONAL.memory, "factor above 0";
        /// Overcommit factor of `disk_mb`. Above 1, sandboxes that fill their disks can reach the reserve and are then paused.
        /// With 1, each sandbox can fill its disk.
        overcommit_disk: f64 = Overcommit::PERSONAL.disk, "factor above 0";
        /// Reserve of free disk space. Below it, sandboxes that write are paused with the reason `disk_pressure`, and creates,
        /// resumes, snapshots, forks, rollbacks and uploads get 503 until one and a half times the reserve is free. The reserve
        /// keeps the daemon's records writable. `0`: 5 % of the file system, at most 2048.
        reserve_disk_mb: u64 = 0, "MB" in ANY_AMOUNT;
        /// Reserve of available memory. Below it, creates get 503, and so do resumes of sandboxes whose processes have ended.
        /// `0`: 5 % of the host's memory, at most 2048.
        reserve_memory_mb: u64 = 0, "MB" in ANY_AMOUNT;
    }
}

impl Capacity {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let factors = [
            ("overcommit_cpu", self.overcommit_cpu),
            ("overcommit_memory", self.overcommit_memory),
            ("overcommit_disk", self.overcommit_disk),
        ];
        Problems::of(factors.map(|(key, factor)| {
            ensure!(
                factor.is_finite() && factor > 0.0,
                "capacity.{key} is {factor}; it must be a number above 0"
            );
            Ok(())
        }))
    }
}
