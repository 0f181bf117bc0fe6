//! Settings of the isolation backend.

use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The family of a runtime. Both use the same bundle and differ in how the agent's link is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavour {
    /// `runc`, `crun` and `youki`: the agent inherits a listening socket.
    Native,
    /// gVisor's `runsc`: the agent connects to a socket in a mounted directory.
    Gvisor,
}

/// Rate limits of one sandbox's disk; 0 is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskRates {
    pub read_mb_per_s: u32,
    pub write_mb_per_s: u32,
    /// Requests a second, of reads and of writes each.
    pub iops: u32,
}

/// Settings of an [`crate::OciDriver`].
#[derive(Debug, Clone)]
pub struct Settings {
    /// The runtime's program.
    pub runtime: PathBuf,
    pub flavour: Flavour,
    /// Additional arguments before the runtime's command, such as `--platform=systrap`.
    pub runtime_args: Vec<String>,
    /// The static agent, process 1 of every sandbox.
    pub agent: PathBuf,
    /// For disks; survives a reboot.
    pub data_dir: PathBuf,
    /// For sockets, bundles and runtime state; does not survive a reboot.
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
    /// DNS server of the sandboxes. None: `/etc/resolv.conf` is the image's.
    pub resolver: Option<Ipv4Addr>,
}

impl Settings {
    /// The family of a runtime by its file name.
    pub fn flavour_of(runtime: &std::path::Path) -> Flavour {
        let name = runtime.file_name().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
        if name.starts_with("runsc") { Flavour::Gvisor } else { Flavour::Native }
    }
}
