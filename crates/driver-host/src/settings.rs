//! Settings of sandboxes on this host, for all backends.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use api::Isolation;

/// Rate limits of one sandbox's disk; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskRates {
    pub read_mb_per_s: u32,
    pub write_mb_per_s: u32,
    /// Requests a second, of reads and of writes each.
    pub iops: u32,
}

/// Settings of a [`crate::HostDriver`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The static agent, process 1 of every sandbox.
    pub agent: PathBuf,
    /// For disks; survives a reboot.
    pub data_dir: PathBuf,
    /// For sockets, bundles and state of runtimes; does not survive a reboot.
    pub run_dir: PathBuf,
    /// Name of the parent cgroup, below the root of every hierarchy.
    pub cgroup_parent: String,
    /// First host user id of slot 0; a slot is 65,536 ids wide.
    pub uid_base: u32,
    /// Most processes and threads of one sandbox.
    pub pids_max: u32,
    pub disk_rates: DiskRates,
    /// Memory limit of all sandboxes together, so that they run out of memory before the host does.
    pub memory_max_mb: Option<u64>,
    /// Mount point of lxcfs, whose files are mounted over some of `/proc` if it answers.
    pub lxcfs: Option<PathBuf>,
    /// No sandbox is started with a weaker isolation. Records of earlier versions name none.
    pub minimum_isolation: Isolation,
    /// DNS server of the sandboxes. None: `/etc/resolv.conf` is the image's.
    pub resolver: Option<Ipv4Addr>,
}
