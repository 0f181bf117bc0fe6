//! `[runtime]`: what all sandboxes share.

use anyhow::{Result, ensure};

use super::declare::{table, within};
use super::problems::Problems;

table! {
    /// What all sandboxes share.
    pub struct Runtime {
        /// The former name of `isolation.container.program`. `runsc` makes gVisor the isolation of all sandboxes.
        path: String = "auto".to_owned(), "program";
        /// The former name of the arguments of that program.
        args: Vec<String>, "list of strings";
        /// The static program `sandbox-agent`. `"auto"`: in the directory of `sandboxd`. `sandbox-launcher` is beside it.
        agent: String = "auto".to_owned(), "path";
        /// The parent cgroup of all sandboxes. If only `data_dir` is changed, the default is `sandboxd-` and the same 8 digits
        /// as in `run_dir`.
        cgroup_parent: String = "sandboxd".to_owned(), "relative path";
        /// First host user id of sandboxes; each takes 65,536 ids. The ranges must not overlap those in `/etc/subuid`.
        // The default is between the range of systemd containers and the upper half, where some tools fail.
        uid_base: u32 = 0x7000_0000, "id" in 65_536..=0xFFFE_0000;
        /// Number of such ranges, and so the maximum number of sandboxes.
        uid_slots: u32 = 3_840, "count";
        /// Processes and threads of one sandbox.
        pids_max: u32 = 1_024, "count" in 16..=4_000_000;
        /// Read rate of one sandbox's disk. `0`: unlimited. See [operations.md](operations.md#disk-rates).
        disk_read_mb_per_s: u32 = 0, "MB a second" in 0..=1_000_000;
        /// Write rate of one sandbox's disk. `0`: unlimited.
        disk_write_mb_per_s: u32 = 0, "MB a second" in 0..=1_000_000;
        /// Read requests, and write requests, of one sandbox's disk. `0`: unlimited.
        disk_iops: u32 = 0, "requests a second" in 0..=10_000_000;
        /// With lxcfs, programs see the memory and CPUs of their sandbox instead of those of the host. `"auto"` uses the lxcfs
        /// of the host or starts one; a directory names the mount of a running lxcfs.
        lxcfs: String = "auto".to_owned(), "`\"auto\"`, `\"off\"` or directory";
    }
}

impl Runtime {
    pub(super) fn check(&self) -> Result<(), Problems> {
        let room = u64::from(u32::MAX - self.uid_base) / 65_536;
        Problems::of([
            within("runtime.uid_slots", self.uid_slots.into(), &(1..=room.max(1))),
            check_cgroup(&self.cgroup_parent),
        ])
    }
}

fn check_cgroup(parent: &str) -> Result<()> {
    ensure!(
        !parent.is_empty()
            && !parent.starts_with('/')
            && !parent.split('/').any(|part| matches!(part, "" | "." | "..")),
        "runtime.cgroup_parent is '{parent}'; it must be a relative path of plain names"
    );
    Ok(())
}
